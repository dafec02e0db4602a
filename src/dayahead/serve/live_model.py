"""The model that a service answers with, and its successor when one appears on the disk."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dayahead.core.columns import ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.core.fingerprints import sha256_of
from dayahead.model.checkpoint import READ_ERRORS
from dayahead.serve.live_sessions import LiveSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options

CURRENT = "current"
"""Link to the model in use, in a folder of published models."""
FILES = ("config.json", "model.safetensors")
N_PROBED = 8
"""Items after which a new model must give recommendations before it serves."""
Signature = tuple[str, tuple[tuple[int, int, int], ...]]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model that has been loaded and tried."""

    recommender: Recommender
    version: str
    """Name of its folder among the published ones; else its last window and a hash of its files."""

    @property
    def window(self) -> str:
        """The last window it was fitted on."""
        return self.recommender.stored.config.window


class ModelSource:
    """A folder whose model may be replaced while it is served.

    Args:
        folder: of the model, or a link to it.
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

    def load(self) -> LoadedModel:
        """Load the model that is there now.

        Raises:
            ModelFileError: it is not complete, or gives no finite scores.
        """
        found = self._signature()
        try:
            loaded = self._load()
        except ModelFileError:
            self._last = found
            raise
        self._last = found
        return loaded

    def _load(self) -> LoadedModel:
        folder = self.folder.resolve()  # what a link names now, whatever it names later
        recommender = Recommender.load(folder)
        _probe(recommender, folder)
        if self._is_published:
            return LoadedModel(recommender, folder.name)
        digest = sha256_of(folder / FILES[1])[:8]
        return LoadedModel(recommender, f"{recommender.stored.config.window}-{digest}")

    def load_if_new(self) -> LoadedModel | None:
        """Load the model if it is another one than last time, whether that was good or damaged.

        One that could not be loaded for another reason, such as a lack of memory, is tried again.

        Raises:
            ModelFileError: as `load`.
        """
        found = self._signature()
        return None if found is None or found == self._last else self.load()

    def _signature(self) -> Signature | None:
        """Return what tells this model from another without reading it; None while it is not there.

        `train` and `nightly` write config.json last.
        """
        try:
            folder = self.folder.resolve()
            found = [(folder / name).stat() for name in FILES]
        except (OSError, RuntimeError):  # RuntimeError: a loop of links
            return None
        return str(folder), tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


def _probe(recommender: Recommender, folder: Path) -> None:
    """Ask for recommendations after some items, which also compiles what is compiled when used."""
    stored = recommender.stored
    try:
        rows = stored.candidates[:N_PROBED] - N_RESERVED
        items = stored.vocabularies[ITEM_ID][VALUE].take(rows)
        tables = [recommender.events_with({ITEM_ID: [item]}) for item in items.to_pylist()]
        sessions = LiveSessions.of(tables, [None] * len(tables))
        found = recommender.rank(sessions, [Options(cold_start="model")] * len(tables))
    except (*READ_ERRORS, IndexError) as error:
        raise ModelFileError(f"{folder}: the model cannot be used ({error})") from None
    is_finite = np.isfinite(found.scores[found.is_used])
    if not len(is_finite) or not is_finite.all():
        raise ModelFileError(
            f"{folder}: {len(is_finite) - is_finite.sum()} of {len(is_finite)} scores of the model "
            f"are not finite; expected a finite one for each of its items"
        )
