"""The model that a service answers with, and its successor when one appears on the disk."""

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dayahead.core.columns import ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError, ModelFileError, ScoreError
from dayahead.core.fingerprints import sha256_of
from dayahead.model.checkpoint import CONFIG, READ_ERRORS, TENSORS
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems
from dayahead.windows.folder import vocabulary_path

CURRENT = "current"
"""Link to the model in use, in a folder of published models."""
N_PROBED = 8
"""Number of one-item sessions for which a new model must give recommendations before it serves."""
Signature = tuple[tuple[str, int, int, int], ...]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model that has been loaded and tested."""

    recommender: Recommender
    version: str
    """Name of its folder among the published ones; else its last window and a hash of its files."""

    @property
    def window(self) -> str:
        """The last window it was fitted on."""
        return self.recommender.stored.config.window

    @cached_property
    def similar(self) -> SimilarItems:
        """Finds similar items; it keeps what it has computed for later requests."""
        return SimilarItems(self.recommender)


class ModelSource:
    """A folder whose model may be replaced while it is served.

    Args:
        folder: folder of the model, or a link to it.
        is_published: whether the folder's own name is the model's version.
    """

    def __init__(self, folder: Path, *, is_published: bool = False) -> None:
        self.folder = folder
        self._is_published = is_published
        self._last: Signature | None = None

    @classmethod
    def chosen(cls, models: Path | None, published: Path | None) -> "ModelSource":
        """Return the source that a command line names, models/ by default.

        Raises:
            ConfigError: both are given.
        """
        if models is not None and published is not None:
            raise ConfigError("serve: give --models DIR or --published DIR, not both")
        if published is not None:
            return cls(published / CURRENT, is_published=True)
        return cls(models or Path("models"))

    @property
    def _target(self) -> Path:
        """Folder that the link names now, even if it changes later; a loop of links is kept."""
        return Path(os.path.realpath(self.folder))

    def load(self) -> LoadedModel:
        """Load the model that is there now.

        Raises:
            ModelFileError: it is not complete, changed meanwhile, or gives no finite scores.
        """
        if self._is_published and not os.path.lexists(self.folder):
            raise ModelFileError(
                f"{self.folder}: nothing is published here yet; run `dayahead nightly`, or serve "
                f"models/, which `dvc repro` writes, without --published"
            )
        folder = self._target
        found = _signature(folder)
        try:
            loaded = self._load(folder)
        except ModelFileError:
            # A damaged model is not loaded again until its files change.
            self._last = found
            raise
        # It may be a mixture of two models. `_last` is unchanged, so it will be loaded again.
        if _signature(folder) != found:
            raise ModelFileError(f"{folder}: files changed while the model was loaded")
        self._last = found
        return loaded

    def _load(self, folder: Path) -> LoadedModel:
        recommender = Recommender.load(folder)
        _probe(recommender, folder)
        if self._is_published:
            return LoadedModel(recommender, folder.name)
        digest = sha256_of(folder / TENSORS)[:8]
        return LoadedModel(recommender, f"{recommender.stored.config.window}-{digest}")

    def forget(self) -> None:
        """Let `load_if_new` load again what was loaded last."""
        self._last = None

    def load_if_new(self) -> LoadedModel | None:
        """Load the model if its files differ from those loaded last, whether good or damaged.

        If loading failed for another reason, such as a lack of memory, it is tried again.

        Raises:
            ModelFileError: as `load`.
        """
        found = _signature(self._target)
        return None if found is None or found == self._last else self.load()


def _signature(folder: Path) -> Signature | None:
    """Return what distinguishes models without reading them; None if there is no model.

    `train` and `nightly` write config.json last.
    """
    try:
        vocabularies = sorted(vocabulary_path(folder, ITEM_ID).parent.iterdir())
        paths = [folder / CONFIG, folder / TENSORS, *vocabularies]
        found = [(str(path), path.stat()) for path in paths]
    except OSError:
        return None
    return tuple((name, each.st_ino, each.st_size, each.st_mtime_ns) for name, each in found)


def _probe(recommender: Recommender, folder: Path) -> None:
    """Recommend after some items; this also compiles the functions that compile on first use."""
    stored = recommender.stored
    try:
        rows = stored.candidates[:N_PROBED] - N_RESERVED
        items = stored.vocabularies[ITEM_ID][VALUE].take(rows)
        tables = [recommender.events_with({ITEM_ID: [item]}) for item in items.to_pylist()]
        sessions = RawSessions.of(tables, [None] * len(tables))
        recommender.rank(sessions, [Options(cold_start="model")] * len(tables))
    except (*READ_ERRORS, ScoreError) as error:
        raise ModelFileError(f"{folder}: the model cannot be used ({error})") from None
