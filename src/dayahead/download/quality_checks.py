"""What is wrong with the rows of one source file, counted while they are converted."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW
from dayahead.download.events import EventBatch
from dayahead.download.rows import EXAMPLES, Records


@dataclass
class Count:
    """Rows at fault."""

    rows: int = 0
    of: int = 0
    """Rows looked at."""
    examples: list[str] = field(default_factory=list)
    """Where the first of them stand, behind the name of the file."""

    def add(self, rows: int, of: int, places: Iterable[str] = ()) -> None:
        """Count more rows."""
        self.rows += rows
        self.of += of
        for place in places:
            if len(self.examples) < EXAMPLES:
                self.examples.append(place)


class Census:
    """Counts by check: unreadable, nulls.<column>, negative.<feature>, backwards, duplicates."""

    def __init__(self, shown: str) -> None:
        """Begin a file, which messages call `shown`."""
        self.counts: dict[str, Count] = {}
        self._shown = shown
        self._days: set[int] = set()
        self._starts: list[tuple[int, int, str]] = []
        """Of each batch: its first row, that row's number for messages, and of what."""
        self._last_time: int | None = None

    def observe(self, records: Records, batch: EventBatch, first_row: int) -> None:
        """Count a batch; batches come in the order of the file.

        Args:
            records: The rows as they were read.
            batch: What became of them.
            first_row: Number of the first of them in the file, from 0.
        """
        place = f"{records.name}, {records.unit} ".removeprefix(self._shown)
        self._starts.append((first_row, records.first, place))
        unreadable = batch.n_rows - batch.readable.num_rows
        self._count("unreadable").add(
            unreadable, batch.n_rows, (fault.removeprefix(self._shown) for fault in batch.faults)
        )
        for name in batch.readable.schema.names:
            if name != ROW:
                self._add(f"nulls.{name}", batch.readable, batch.readable[name].is_null())
        for column in batch.table.schema:
            if pa.types.is_floating(column.type):
                below = pc.fill_null(pc.less(batch.table[column.name], 0), fill_value=False)
                self._add(f"negative.{column.name}", batch.table, below)
        self._observe_times(batch.table)

    def observe_part(self, path: Path) -> None:
        """Count the events of a finished part that are like another of it but for their row."""
        n_events, rows = _repeated(path)
        self._count("duplicates").add(len(rows), n_events, map(self._place, rows[:EXAMPLES]))

    def days(self) -> list[str]:
        """Days (UTC) with an event, ISO 8601, in order."""
        return [str(np.datetime64(day, "D")) for day in sorted(self._days)]

    def _observe_times(self, events: pa.Table) -> None:
        times = np.asarray(events[EVENT_TIME].cast(pa.int64()))
        if not len(times):
            return
        before = times[0] if self._last_time is None else self._last_time
        falls = np.diff(times, prepend=before) < 0
        self._add("backwards", events, pa.array(falls))
        self._last_time = int(times[-1])
        self._days.update(np.unique(times // 86_400_000_000).tolist())

    def _add(self, check: str, table: pa.Table, mask: pa.Array) -> None:
        n_rows = pc.sum(mask).as_py() or 0
        count = self._count(check)
        wanted = EXAMPLES - len(count.examples)
        found = table[ROW].filter(mask).slice(0, wanted) if n_rows and wanted else []
        count.add(n_rows, table.num_rows, (self._place(row.as_py()) for row in found))

    def _count(self, check: str) -> Count:
        return self.counts.setdefault(check, Count())

    def _place(self, row: int) -> str:
        start, number, place = self._starts[bisect_right(self._starts, row, key=_first_row) - 1]
        return f"{place}{number + row - start:,}"


def _first_row(start: tuple[int, int, str]) -> int:
    return start[0]


def _repeated(path: Path) -> tuple[int, list[int]]:
    """Events of a part, and the rows (in order) of those that are equal to an earlier one.

    Only those that share item and time with another are looked at whole.
    """
    keys = pq.read_table(path, columns=[ITEM_ID, EVENT_TIME])
    keys = keys.to_pandas(strings_to_categorical=True)
    is_shared = pd.util.hash_pandas_object(keys, index=False).duplicated(keep=False).to_numpy()
    if not is_shared.any():
        return len(keys), []
    events = pa.concat_tables(_kept(path, is_shared))
    columns = [name for name in events.schema.names if name != ROW]
    groups = events.group_by(columns, use_threads=False).aggregate([(ROW, "min")])
    is_first = pc.is_in(events[ROW], value_set=groups[f"{ROW}_min"])
    return len(keys), events.filter(pc.invert(is_first))[ROW].to_pylist()


def _kept(path: Path, mask: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    file = pq.ParquetFile(path)
    start = 0
    for index in range(file.num_row_groups):
        group = file.read_row_group(index)
        yield group.filter(pa.array(mask[start : start + group.num_rows]))
        start += group.num_rows
