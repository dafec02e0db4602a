"""Published models: folders written atomically, and links that are replaced atomically."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from dayahead.core.cache import link_tree
from dayahead.core.errors import DataError
from dayahead.core.files import folder_written_whole
from dayahead.model.content_keys import content_key

LINKS = ("current", "previous")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publications:
    """The folder published/: a folder for each model, `current` and `previous`."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the folder of a published model."""
        return self.folder / name

    def stage(self, models: Path, name: str) -> None:
        """Put a saved model under its name, whole or not at all; nothing serves it yet."""
        if not self.path(name).is_dir():
            with folder_written_whole(self.path(name)) as aside:
                link_tree(models, aside)

    def link(self, current: str, previous: str) -> None:
        """Point the links to these models, each atomically; no name: no link.

        If the folder of the previous model is gone, that link is removed, with a warning.

        Raises:
            DataError: the folder of the current model is gone.
        """
        if current and not self.path(current).is_dir():
            raise DataError(
                f"{self.path(current)}: no such folder, but current should link to it; restore it, "
                f"serve the model before it (`dayahead nightly --rollback`), or move "
                f"nights/history.jsonl away to start again"
            )
        if previous and not self.path(previous).is_dir():
            _log.warning(
                "%s: no such folder, so there is no previous model to roll back to",
                self.path(previous),
            )
            previous = ""
        # `previous` first: both the old and the new model are linked at any time.
        for link, name in (("previous", previous), ("current", current)):
            if self.linked(link) != name:
                self._replace(self.folder / link, name)

    def linked(self, link: str) -> str:
        """Return the model that a link names, empty for none."""
        path = self.folder / link
        return path.readlink().name if path.is_symlink() else ""

    def prune(self, keep: int, order: list[str]) -> None:
        """Remove all but the newest `keep` models and those that are linked.

        `order` are the names of published models, the oldest first; others are left alone.
        """
        newest = list(dict.fromkeys(reversed(order)))
        kept = {*newest[:keep], *map(self.linked, LINKS)}
        for name in newest:
            if name not in kept:
                shutil.rmtree(self.path(name), ignore_errors=True)

    def _replace(self, path: Path, name: str) -> None:
        if not name:
            path.unlink(missing_ok=True)
            return
        aside = path.with_name(f".{path.name}.new")
        aside.unlink(missing_ok=True)  # left by a killed run
        # A link is renamed over the old one, because that is atomic.
        aside.symlink_to(name)
        aside.replace(path)


def model_name(models: Path, window: str) -> str:
    """Return <window>-<key8>: the key is that of the content of all files, checked at each load."""
    return f"{window}-{content_key(models)}"
