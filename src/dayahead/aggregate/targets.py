"""Properties of each target before it is predicted: its session, its item's age and popularity."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.core.columns import FIRST_TIME, ITEM_ID, N_RESERVED, SESSION_ID
from dayahead.core.errors import DataError
from dayahead.outputs.tables import WindowRanks
from dayahead.windows.folder import Role, Window, WindowFolder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOUR: Final = 3_600_000_000
"""Length of an hour, in microseconds."""
ABSENT: Final = 1 << 32
"""Rank of an item without events, after all others."""


@dataclass(frozen=True)
class Targets:
    """The targets of one window or of several, in the order of their ranks."""

    n_before: Ints
    """Items of the session before the target."""
    age: Floats
    """Hours from the item's first event to the start of the window; below 0: new in it."""
    popularity: Ints
    """Rank of the item by its events in the window that was fitted last, or ABSENT."""


def targets_of(
    folder: WindowFolder, window: Window, split: Role, ranks: WindowRanks, counts: Ints
) -> Targets:
    """Return the properties of the targets of a window; `split` is evaluation.split.

    `counts` are the events of each catalogue index in the train sessions of the window that was
    fitted last.

    Raises:
        DataError: the ranks are those of other sessions.
    """
    items = np.asarray(ranks.targets)
    first = folder.vocabulary(ITEM_ID)[FIRST_TIME].cast(pa.int64()).to_numpy()
    is_known = items >= N_RESERVED
    since = np.where(is_known, window.start_time - first[np.maximum(items - N_RESERVED, 0)], -1)
    return Targets(
        n_before=_items_before(folder, window, split, ranks),
        age=since / HOUR,
        popularity=popularity_ranks(counts)[items],
    )


def _items_before(folder: WindowFolder, window: Window, split: Role, ranks: WindowRanks) -> Ints:
    """Return how many items of its session precede each target."""
    table = folder.read(window, split, [SESSION_ID, ITEM_ID])
    n_items = pc.list_value_length(table[ITEM_ID]).to_numpy()
    # A session may have several targets, or none of a type that is predicted.
    found_rows = pc.index_in(ranks.session_ids, table[SESSION_ID].combine_chunks())
    rows = found_rows.fill_null(-1).to_numpy().astype(np.int64)
    is_same = (np.diff(rows, prepend=0) >= 0).all() and (rows[:1] >= 0).all()
    if ranks.positions is None:
        is_same = is_same and len(rows) == len(table)
    else:
        is_same = is_same and (ranks.positions < n_items[rows]).all()
    if not is_same:
        raise DataError(
            f"results/ranks/{window.name}.parquet: expected the {split} sessions of "
            f"{folder.folder} in their order, found others; run `dvc repro -f train`"
        )
    found = n_items[rows] - 1 if ranks.positions is None else ranks.positions
    return np.asarray(found, np.int64)


def popularity_ranks(counts: Ints) -> Ints:
    """Rank items by their counts: 1 + the number of items that have more; ABSENT where it is 0."""
    ascending = np.sort(counts[counts > 0])
    n_at_most = np.searchsorted(ascending, counts, side="right")
    return np.where(counts > 0, 1 + len(ascending) - n_at_most, ABSENT)
