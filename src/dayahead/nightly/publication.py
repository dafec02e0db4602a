"""Published models: folders written whole, and links that are replaced in one step."""

import shutil
from pathlib import Path

from dayahead.core.cache import link_tree
from dayahead.core.errors import DataError
from dayahead.core.files import folder_written_whole
from dayahead.model.content_keys import content_key

LINKS = ("current", "previous")


class Publications:
    """The folder published/: a folder for each model, `current` and `previous`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return the folder of a published model."""
        return self.folder / name

    def stage(self, models: Path, name: str) -> None:
        """Put a saved model under its name, whole or not at all; nothing serves it yet."""
        if not self.path(name).exists():
            with folder_written_whole(self.path(name)) as aside:
                link_tree(models, aside)

    def link(self, current: str, previous: str) -> None:
        """Let the links name these models, each in one step; no name: no link.

        Raises:
            DataError: the folder of a model is gone.
        """
        for link, name in zip(LINKS, (current, previous), strict=True):
            if name and not self.path(name).is_dir():
                raise DataError(
                    f"{self.path(name)}: no such folder, but {link} should link to it; restore it, "
                    f"or move nights/history.jsonl away to start again"
                )
        # The old model first: a reader of `current` finds one of the two at any time.
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
        aside.symlink_to(name)
        aside.replace(path)


def model_name(models: Path, window: str) -> str:
    """Return <window>-<key8>: the key is that of the content of all files, checked at each load."""
    return f"{window}-{content_key(models)}"
