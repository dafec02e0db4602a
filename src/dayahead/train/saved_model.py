"""A saved model evaluated on a window that came after it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, SESSION_ID, VALUE
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.core.indices import union
from dayahead.distributed.process import ALONE
from dayahead.model.checkpoint import StoredModel
from dayahead.model.model import Padded
from dayahead.outputs.tables import WindowRanks, WindowResult, window_result
from dayahead.train.batches import LoadedBatches, Sessions, sorted_rows
from dayahead.train.catalogue import Catalogue
from dayahead.train.data_loading import columns_read
from dayahead.train.evaluate import Offered, RankedTargets, evaluate
from dayahead.train.event_types import EventTypes
from dayahead.train.live_evaluation import Request, evaluate_live
from dayahead.windows.folder import Role, Window, WindowFolder
from dayahead.windows.metadata import Statistics

BATCH_SIZE = 512
"""Sessions scored at once; no metric depends on it."""


def evaluate_saved(
    stored: StoredModel,
    windows: Path,
    window: str | None = None,
    split: Role = "test",
    cutoffs: Sequence[int] = (10, 20),
    packaged: Sequence[str] = (),
) -> WindowResult:
    """Evaluate a saved model on the last items of a window's sessions, on the CPU.

    Args:
        stored: a loaded model.
        windows: folder that preprocess wrote, with the vocabulary that the model was fitted with.
        window: name of a later window than the last one fitted; None: the one that follows it.
        split: sessions to evaluate on, as `evaluation.split`.
        cutoffs: lengths of the lists, as `evaluation.cutoffs`.
        packaged: metrics of other packages, as `evaluation.metrics`.

    Raises:
        ConfigError: there is no such window, or the model was fitted on it or after it; a metric
            is unknown or fails.
        ModelFileError: the model belongs to another folder of windows.
        DataError: the window has no session to evaluate on, or a file is damaged.
    """
    folder = WindowFolder(windows)
    chosen = _later_window(folder, stored.config.window, window)
    ranks = saved_ranks(stored, folder, chosen, split)
    return window_result(chosen.name, ranks, cutoffs, None, {}, packaged)


def saved_ranks(
    stored: StoredModel,
    folder: WindowFolder,
    window: Window,
    split: Role = "test",
    positions: Literal["last", "all"] = "last",
) -> WindowRanks:
    """Rank the targets of a window's sessions with a saved model, on the CPU.

    These are of the types that the model was fitted to predict (`events.targets`).

    A model with ticks counts the train sessions since its fit as they come, this window's too, and
    is then again as it was saved.

    Raises:
        ModelFileError: the model belongs to another folder of windows.
        DataError: a file is damaged.
    """
    check_same_data(stored, folder)
    types = EventTypes.of(folder, stored.config.events)
    table, sessions = _read(stored, folder, window, split)
    targets = types.targets_in(table, positions)
    n_targets = targets.counts
    if stored.model.tick:
        ranked = _live_ranks(stored, folder, window, sessions, n_targets)
    else:
        # Later values are unknown, as they were when the model was saved.
        batches = _batches(sessions.without_later(stored.config.known))
        offered = _offered(stored, stored.candidates, window.start_time)
        ranked = evaluate(stored.model, batches, n_targets, offered, ALONE)
    return ranked.as_window_ranks(table[SESSION_ID], targets)


def _read(
    stored: StoredModel, folder: WindowFolder, window: Window, role: Role
) -> tuple[pa.Table, Sessions]:
    """Read a role's sessions, as a table and as the model reads them."""
    config, types = stored.config.model, EventTypes.of(folder, stored.config.events)
    read = columns_read(config, folder.statistics)
    columns = types.columns(read, with_past=config.n_past_read > 0)
    table = folder.read(window, role, [SESSION_ID, *columns])
    sessions = Sessions.from_table(table.drop([SESSION_ID]), config.n_past_read)
    return table, types.mark(sessions, read)


def _live_ranks(
    stored: StoredModel,
    folder: WindowFolder,
    window: Window,
    sessions: Sessions,
    n_targets: NDArray[np.int64],
) -> RankedTargets:
    """Rank the targets as of their ticks, while the model counts the windows after its fit.

    A window that it was fitted on comes again instead, right after the last one: its clicks would
    count twice at their own times, which are before the fit's end.
    """
    model, config = stored.model, stored.config
    windows = [each for each in folder.windows if config.window < each.name <= window.name]
    if windows:
        sizes, delay = Catalogue(folder, config.model).sizes_at(window), 0
    else:  # their clicks come so many microseconds later than they were
        windows, sizes, delay = [window], config.sizes, config.end - window.start_time
    end = folder.ends[window.name] + delay

    def delayed(given: Sessions) -> Sessions:
        times = given.columns[EVENT_TIME] + delay
        return replace(given, columns=given.columns | {EVENT_TIME: times})

    def train_sessions() -> Iterator[Padded]:
        for each in windows:
            _, found = _read(stored, folder, each, "train")
            yield from _batches(delayed(found)).padded()

    def offered(time: int) -> Offered:
        return _offered(stored, union(stored.candidates, model.counted_items), time)

    request = Request.of(delayed(sessions), n_targets, model.tick, end)
    try:
        model.follow(sizes, train_sessions(), end, to_fit=False)
        ranked = evaluate_live(model, request, offered, ALONE, BATCH_SIZE)
    finally:
        model.rewind()
    return ranked


def _offered(stored: StoredModel, candidates: NDArray[np.int32], time: int) -> Offered:
    return Offered.at(time, candidates, None if stored.items is None else stored.items.table)


def _batches(sessions: Sessions) -> LoadedBatches:
    return LoadedBatches(sessions, sorted_rows(sessions.lengths, BATCH_SIZE), ALONE.rank)


def _later_window(folder: WindowFolder, fitted: str, name: str | None) -> Window:
    """Return the window of this name, or the first one after `fitted`."""
    later = [each for each in folder.windows if each.name > fitted]
    if not later:
        raise ConfigError(
            f"{folder.folder}: the model was fitted on {fitted}, and no later window is kept to "
            f"evaluate it on; add data, or fit with training.fit_last: false"
        )
    found = later[:1] if name is None else [each for each in later if each.name == name]
    if not found:
        raise ConfigError(
            f"window {name}: expected one after {fitted}, the last one that the model was fitted "
            f"on: {', '.join(each.name for each in later)}"
        )
    return found[0]


def check_same_data(stored: StoredModel, folder: WindowFolder) -> None:
    """Check that indices and scales of the windows are those of the model.

    Raises:
        ModelFileError: they differ.
    """
    for column, table in stored.vocabularies.items():
        values = folder.vocabulary(column)[VALUE].slice(0, len(table)).combine_chunks()
        if not values.equals(table[VALUE].combine_chunks()):
            raise ModelFileError(
                f"{folder.folder}: the model was fitted with another vocabulary of {column}; "
                f"expected the windows that it was fitted on, or the same ones of a longer log"
            )
    known, fitted = folder.statistics, stored.config.statistics
    features = stored.config.model.features
    if not {*features} <= known.features.keys() or _before(known, fitted) != fitted:
        raise ModelFileError(
            f"{folder.folder}: the model's features were fitted to other statistics; expected the "
            f"windows that it was fitted on, or the same ones of a longer log"
        )


def _before(known: Statistics, fitted: Statistics) -> Statistics:
    """Return `known` reduced to the features of `fitted` and the windows that these have."""
    own = {}
    for name, feature in known.select(fitted.features).features.items():
        windows = fitted.features[name].windows or {}
        shared = {key: value for key, value in (feature.windows or {}).items() if key in windows}
        own[name] = replace(feature, windows=shared or None)
    return replace(known, features=own, title=None, event_type=None)
