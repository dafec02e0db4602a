"""The table of items as preprocess uses it: which row of an item holds when.

A row is known from the first kept window on that ends after its time, so that no row changes a
window that ended before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.errors import DataError
from dayahead.core.files import written_whole
from dayahead.dataset.item_table import ItemTableConfig
from dayahead.dataset.manifest import RawManifest
from dayahead.features.arrays import Flags, Ints, codes_of, ints, is_new, set_column
from dayahead.features.as_of import AsOf
from dayahead.features.vocabulary import listed_values
from dayahead.preprocess.calendar import Progress
from dayahead.preprocess.event_log import check_columns, check_parts
from dayahead.windows.metadata import ItemStatistics

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass(frozen=True)
class ItemRows:
    """The rows of the table that change something, by item and time.

    Of rows of one item and time the last one holds, and a row that is like the one before it
    changes nothing. Rows of a table without times hold from 1970 on.
    """

    config: ItemTableConfig
    table: pa.Table
    """item_id, event_time, and the columns of features, availability, texts and vectors."""

    @classmethod
    def read(cls, raw: Path, log: RawManifest, config: ItemTableConfig) -> "ItemRows":
        """Read the table from data/raw.

        Raises:
            DataError: its files are missing, damaged or of another data set.
        """
        if log.items is None:
            raise DataError(f"{raw}: has no table of items; run `dvc repro -f download`")
        parts = log.items.parts
        schema = config.event_schema()
        for part in parts:
            check_columns(raw / part.file, schema.names)
        check_parts(raw, parts)
        tables = [pq.read_table(raw / part.file, schema=schema) for part in parts]
        table = pa.concat_tables([schema.empty_table(), *tables]).drop_columns(["row"])
        if not config.has_times:
            times = pa.array(np.zeros(len(table), np.int64)).cast(pa.timestamp("us", "UTC"))
            table = table.add_column(1, EVENT_TIME, times)
        return cls(config, _changes(table.combine_chunks()))

    @property
    def times(self) -> Ints:
        """Time of each row, microseconds since 1970, UTC."""
        return ints(self.table[EVENT_TIME])

    def before(self, end: int) -> pa.Table:
        """Return the rows before a time."""
        return self.table.filter(pa.array(self.times < end)).combine_chunks()

    @cached_property
    def statistics(self) -> ItemStatistics:
        """What statistics.json says of the table."""
        items = self.config.items
        return ItemStatistics(
            features=[*items.features],
            vectors={
                name: vector.length if vector.kind == "text" else length_of(self.table[name])
                for name, vector in items.vectors.items()
            },
            availability=bool(items.availability),
        )

    def write_features(self, path: Path) -> None:
        """Write what `features_as_of` reads."""
        table = self.table.select([ITEM_ID, EVENT_TIME, *self.config.items.features])
        with written_whole(path) as aside, pa.ipc.new_file(str(aside), table.schema) as file:
            file.write_table(table)


@dataclass(frozen=True)
class ItemsByWindow:
    """The rows of the table, and the kept windows of a log, in order of time, that know them."""

    rows: ItemRows
    names: Sequence[str]
    """Of the windows."""
    ends: Ints
    """Of the windows, microseconds since 1970, UTC."""
    n_written: int
    """How many of them an earlier run wrote."""

    @classmethod
    def of(cls, rows: ItemRows, progress: Progress, kept: Sequence[int]) -> "ItemsByWindow":
        """Return the rows with the windows at some positions in the calendar."""
        calendar = progress.calendar
        n_written = sum(position < progress.n_written for position in kept)
        return cls(rows, [calendar.names[n] for n in kept], calendar.edges[1:][[*kept]], n_written)

    @cached_property
    def positions(self) -> Ints:
        """Position of the first window that knows each row; past the last: none does."""
        return np.searchsorted(self.ends, self.rows.times, side="right")

    def has(self, column: str) -> bool:
        """Return whether a column of events has values of the table."""
        return column in (ITEM_ID, *self.rows.config.items.features)

    def values(self, column: str) -> dict[str, pa.Table]:
        """Return the values of a column by new window that knows some, as `listed_values` does."""
        in_time = np.lexsort((self.rows.times, self.positions))
        begins = np.searchsorted(self.positions[in_time], np.arange(len(self.names) + 1))
        values = self.rows.table[column].take(pa.array(in_time))
        return {
            self.names[n]: listed_values(values.slice(begins[n], begins[n + 1] - begins[n]))
            for n in range(self.n_written, len(self.names))
        }

    def is_newest(self, groups: Ints) -> Flags:
        """Flag the last row of each item and group; the groups of an item are in order."""
        return _is_last_of_pair(codes_of(self.rows.table[ITEM_ID]), groups)


def _changes(table: pa.Table) -> pa.Table:
    """Sort rows by item and time, and leave out those that change nothing."""
    # Stable: of rows of one item and time the last one stays the last.
    table = table.sort_by([(ITEM_ID, "ascending"), (EVENT_TIME, "ascending")])
    is_last = _is_last_of_pair(codes_of(table[ITEM_ID]), ints(table[EVENT_TIME]))
    table = table.filter(pa.array(is_last))
    compared = [name for name in table.column_names if name != EVENT_TIME]
    is_other = np.any([_is_other(table[name]) for name in compared], axis=0)
    return table.filter(pa.array(is_other)).combine_chunks()


def _is_last_of_pair(one: Ints, other: Ints) -> Flags:
    return (is_new(one[::-1]) | is_new(other[::-1]))[::-1]


def _is_other(column: pa.ChunkedArray) -> Flags:
    """Flag the rows whose value differs from the one before; the first one does."""
    if not pa.types.is_list(column.type):
        return is_new(codes_of(column))
    matrix = matrix_of(column)
    return np.append(True, (matrix[1:] != matrix[:-1]).any(axis=1))[: len(matrix)]


def length_of(vectors: pa.ChunkedArray) -> int:
    """Return the length of the vectors in a column; 1 if there is none."""
    known = vectors.drop_null()
    return len(known[0]) if len(known) else 1


def matrix_of(vectors: pa.ChunkedArray) -> Matrix:
    """Return the vectors of a column, shape [rows, length]; zeros where there is none."""
    matrix = np.zeros((len(vectors), length_of(vectors)), np.float32)
    known = vectors.is_valid().to_numpy()
    matrix[known] = (
        vectors.drop_null().combine_chunks().flatten().to_numpy().reshape(-1, matrix.shape[1])
    )
    return matrix


def with_item_features(events: pa.Table, path: Path | None, times: Ints) -> pa.Table:
    """Add the features of each event's item as of a time; null where no row holds then.

    `path` is what `ItemRows.write_features` wrote; None: there is no table of items.
    """
    if path is None:
        return events
    table, as_of = _features(path, path.stat().st_mtime_ns)
    rows = as_of.rows(events[ITEM_ID], times)
    taken = table.take(pa.array(rows, mask=rows < 0))
    for name in taken.column_names[2:]:
        events = set_column(events, name, taken[name])
    return events


@lru_cache(maxsize=1)
def _features(path: Path, _changed: int) -> tuple[pa.Table, AsOf]:
    """Read a table once for the tasks of a process, not for each."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    return table, AsOf(table[ITEM_ID], ints(table[EVENT_TIME]))
