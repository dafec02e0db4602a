"""Events that a log holds several times, found over all its files in bounded memory.

Hashes only preselect: rows with a hash that occurs twice are compared value by value.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW

MAX_HASHES = 1 << 25
"""Maximum number of hashes that are held at once: 256 MiB."""
MAX_HELD = 1 << 22
"""Maximum number of rows whose hashes are read once only."""
MAX_ROWS = 1 << 20
"""Maximum number of rows that are compared at once."""
_PLACE = "_place"
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
_Hashed = tuple[int, int, Ints, Hashes]
"""Position of a part and number of a row group, rows of it, and their hashes."""


@dataclass(frozen=True)
class Part:
    """One events file of a log."""

    path: Path
    first_row: int
    """Row number in the whole log of the source file's row 0."""
    first_event: str
    """Earliest event time, ISO 8601 in UTC."""
    last_event: str
    repeats: Callable[[], Ints]
    """Reads its rows that equal an earlier one of it, as `repeats_within` finds them."""


@dataclass(frozen=True)
class _Groups:
    """Row groups of an events file that are searched."""

    path: Path
    first_row: int
    numbers: Sequence[int]
    n_rows: int
    known: Callable[[], Ints] | None = None
    """Reads the rows that are known to be repeats, which are left out; they may be many."""

    def hashes(self, columns: Sequence[str]) -> Iterator[tuple[int, Ints, Hashes]]:
        """Yield number, rows to be compared (from 0) and hashes of columns, by row group."""
        file = pq.ParquetFile(self.path)
        known = np.empty(0, np.int64) if self.known is None else self.known()
        for number in self.numbers:
            table = file.read_row_group(number, columns=[*columns, *([ROW] if len(known) else [])])
            is_compared = np.ones(len(table), dtype=bool)
            if len(known):
                is_compared = ~np.isin(table[ROW].to_numpy(), known)
            if len(columns) == 1:  # an id, which may be missing
                is_compared &= table[columns[0]].is_valid().to_numpy()
            rows = np.flatnonzero(is_compared)
            keys = table.select(columns)
            if len(rows) < len(keys):
                keys = keys.take(pa.array(rows))
            frame = keys.to_pandas(strings_to_categorical=True)
            yield number, rows, pd.util.hash_pandas_object(frame, index=False).to_numpy()

    def rows(self, number: int, rows: Ints, columns: Sequence[str]) -> pa.Table:
        """Return some rows of a row group, with ROW counted over the whole log."""
        file = pq.ParquetFile(self.path)
        table = file.read_row_group(number, columns=[*columns, ROW]).take(pa.array(rows))
        numbers = pc.add(table[ROW], self.first_row)
        return table.set_column(table.column_names.index(ROW), ROW, numbers)


def repeats_within(path: Path) -> Ints:
    """Return the rows of an events file that equal an earlier one of it but for the row."""
    file = pq.ParquetFile(path)
    names = [name for name in file.schema_arrow.names if name != ROW]
    # Few events share item and time, and hashing the other columns would take longer.
    return _repeats([_whole(path)], names, [ITEM_ID, EVENT_TIME])[0]


def repeats_across(parts: Sequence[Part]) -> list[Ints]:
    """Return the rows of each part that equal an event of an earlier part but for the row.

    Equal events have equal times, so that only row groups are read whose times another part has.
    """
    spans = np.array([[_naive(part.first_event), _naive(part.last_event)] for part in parts])
    found = [_shared(part, np.delete(spans, n, axis=0)) for n, part in enumerate(parts)]
    names = [name for name in pq.read_schema(parts[0].path).names if name != ROW]
    return _repeats(found, names, names)


def repeats_of(parts: Sequence[Part], column: str) -> list[Ints]:
    """Return the rows of each part with a value of a column that an earlier row of the log has."""
    return _repeats([_whole(part.path, part.first_row) for part in parts], [column], [column])


def _whole(path: Path, first_row: int = 0) -> _Groups:
    """Return all row groups of an events file."""
    file = pq.read_metadata(path)
    return _Groups(path, first_row, range(file.num_row_groups), file.num_rows)


def _shared(part: Part, spans: npt.NDArray[np.datetime64]) -> _Groups:
    """Return the row groups with times within one of the spans: shape [n, first and last]."""

    def overlaps(first: np.datetime64, last: np.datetime64) -> bool:
        return bool(((first <= spans[:, 1]) & (spans[:, 0] <= last)).any())

    sizes = {}
    if overlaps(_naive(part.first_event), _naive(part.last_event)):
        file = pq.read_metadata(part.path)
        column = file.schema.names.index(EVENT_TIME)
        for number in range(file.num_row_groups):
            times = file.row_group(number).column(column).statistics
            if overlaps(_naive(str(times.min)), _naive(str(times.max))):
                sizes[number] = file.row_group(number).num_rows
    return _Groups(part.path, part.first_row, [*sizes], sum(sizes.values()), part.repeats)


def _naive(time: str) -> np.datetime64:
    return np.datetime64(datetime.fromisoformat(time).replace(tzinfo=None), "us")


def _repeats(groups: Sequence[_Groups], key: Sequence[str], hashed: Sequence[str]) -> list[Ints]:
    """Return the rows of each part whose key an earlier row of these groups has.

    `hashed` are the columns of the key by which rows are preselected.
    """
    n_rows = sum(each.n_rows for each in groups)

    def read() -> Iterator[_Hashed]:
        searched = [(n, part) for n, part in enumerate(groups) if part.n_rows]
        return ((n, *each) for n, part in searched for each in part.hashes(hashed))

    held = list(read()) if n_rows <= MAX_HELD else None
    n_slices = -(-n_rows // MAX_HASHES)
    found: list[list[Ints]] = [[] for _ in groups]
    for slice_ in range(n_slices):
        for shared in _shared_hashes(held or read(), slice_, n_slices):
            for rows, more in zip(
                found, _compared(groups, held or read(), key, shared), strict=True
            ):
                rows.append(more)
    return [np.sort(np.concatenate([np.empty(0, np.int64), *rows])) for rows in found]


def _shared_hashes(rows: Iterable[_Hashed], slice_: int, n_slices: int) -> Iterator[Hashes]:
    """Yield the hashes of one slice that occur more than once, for about MAX_ROWS rows each."""
    hashes = np.concatenate(
        [each if n_slices == 1 else each[each % np.uint64(n_slices) == slice_] for *_, each in rows]
    )
    hashes.sort()
    is_equal = np.concatenate([[False], hashes[1:] == hashes[:-1], [False]])
    first, last = (
        np.flatnonzero(each)
        for each in (is_equal[1:] > is_equal[:-1], is_equal[1:] < is_equal[:-1])
    )
    shared, batch = hashes[first], np.cumsum(last - first + 1) // MAX_ROWS
    del hashes, is_equal  # the rows are compared while this waits
    yield from (shared[batch == n] for n in np.unique(batch))


def _compared(
    groups: Sequence[_Groups], rows: Iterable[_Hashed], key: Sequence[str], shared: Hashes
) -> list[Ints]:
    """Return the rows of each part whose key an earlier one has, of those with these hashes."""
    tables = []
    for place, number, indices, hashes in rows:
        is_shared = shared[np.searchsorted(shared, hashes).clip(max=len(shared) - 1)] == hashes
        if is_shared.any():
            table = groups[place].rows(number, indices[is_shared], key)
            tables.append(table.append_column(_PLACE, pa.array(np.full(len(table), place))))
    events = pa.concat_tables(tables)
    first = events.group_by(list(key), use_threads=False).aggregate([(ROW, "min")])
    later = events.filter(pc.invert(pc.is_in(events[ROW], value_set=first[f"{ROW}_min"])))
    places, found = later[_PLACE].to_numpy(), later[ROW].to_numpy()
    return [found[places == n] - each.first_row for n, each in enumerate(groups)]
