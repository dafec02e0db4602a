"""What comes for windows that are written already: events, and rows of the table of items."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.errors import DataError
from dayahead.features.arrays import Ints
from dayahead.preprocess.incremental import KNOWN_ITEMS, WINDOWS
from dayahead.preprocess.items import ItemRows
from dayahead.windows.folder import WindowFolder

N_NAMED = 10
"""Number of windows that a message names."""
_REBUILD = "or set preprocess.rebuild=true to rewrite these windows and all after them."


class LateRowsError(DataError):
    """Rows arrived for windows that are already written."""


def check_late_events(late: Ints, names: Sequence[str], known_end: str) -> None:
    """Check that no event came for a window that is written.

    Raises:
        LateRowsError: some did; `late` counts them by window.
    """
    windows = np.flatnonzero(late)
    if not len(windows):
        return
    listed = ", ".join(f"{names[n]} ({late[n]:,} events)" for n in windows[:N_NAMED])
    listed += " ..." if len(windows) > N_NAMED else ""
    raise LateRowsError(
        f"data/raw: {late.sum():,} events came for {len(windows)} windows that are written "
        f"already, when the log reached to {known_end}: {listed}. If no event should be of that "
        f"time, leave it out by time.between in the data set's file; else remove these rows from "
        f"the source, {_REBUILD}"
    )


def check_late_items(items: ItemRows, run: Path) -> None:
    """Check that the table of items has the rows that the written windows of a run know.

    Raises:
        LateRowsError: it has others, or vectors of another length.
    """
    if not (run / KNOWN_ITEMS).exists():
        return
    folder = WindowFolder(run / WINDOWS)
    last = folder.windows[-1].name
    known, now = pq.read_table(run / KNOWN_ITEMS), items.before(folder.ends[last])
    lengths = folder.statistics.items.vectors if folder.statistics.items else None
    if now.equals(known) and lengths == items.statistics.vectors:
        return
    differing = set(_keys(now)) ^ set(_keys(known))
    found = f"{len(differing):,} rows were added or removed" if differing else "rows were changed"
    example = f", such as item {min(differing, key=str)[0]!r}" if differing else ""
    raise LateRowsError(
        f"data/raw: the table of items differs for windows that are written already, up to {last}: "
        f"{found}{example}. Give new rows a time of their own (items.time), {_REBUILD}"
    )


def _keys(table: pa.Table) -> list[tuple[int | str, int]]:
    times = table[EVENT_TIME].cast(pa.int64())
    return list(zip(table[ITEM_ID].to_pylist(), times.to_pylist(), strict=True))
