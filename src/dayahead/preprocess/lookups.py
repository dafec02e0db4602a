"""What earlier runs leave for later ones: rows found by the hash of a key, never read whole.

A file of the memory is an Arrow file sorted by hash and mapped into memory, so looking up what a
day's rows ask for costs as much as that day, however long the log has grown.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.files import written_whole
from dayahead.preprocess.shuffle import Hashes

_HASH = "_hash"


def remember(path: Path, keys: Hashes, rows: pa.Table) -> None:
    """Write rows to be found by their key."""
    order = np.argsort(keys, kind="stable")
    rows = rows.take(order).combine_chunks().append_column(_HASH, pa.array(keys[order]))
    with (
        written_whole(path) as temporary,
        pa.ipc.new_file(str(temporary), rows.schema) as file,
    ):
        file.write_table(rows, max_chunksize=max(len(rows), 1))


def recall(paths: Sequence[Path], keys: Hashes) -> tuple[list[pa.Table], list[NDArray[np.int64]]]:
    """Find the rows of some keys.

    Returns:
        Per file its rows found, and for each row the position of its key in `keys`.
    """
    wanted, first = np.unique(keys, return_index=True)
    tables, places = [], []
    for path in paths:
        rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        held = rows[_HASH].to_numpy()
        low = np.searchsorted(held, wanted, side="left")
        counts = np.searchsorted(held, wanted, side="right") - low
        if counts.any():
            tables.append(rows.drop_columns([_HASH]).take(ranges(low, counts)))
            places.append(np.repeat(first, counts))
    return tables, places


def ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate arange(start, start + count) of every pair."""
    begins = np.cumsum(counts) - counts
    rows: NDArray[np.int64] = np.repeat(starts - begins, counts)
    rows += np.arange(counts.sum())
    return rows
