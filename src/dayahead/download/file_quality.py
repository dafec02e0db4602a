"""What is counted in one source file as it is converted: defects, and events by day."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, EVENT_TIME, ROW, SESSION_START
from dayahead.download.batches import EXAMPLES, UNREADABLE, RawBatch
from dayahead.download.events import EventBatch
from dayahead.download.ids import odd_spellings

UNDECODABLE = "undecodable"
"""Check of rows with a value that is not in the file's encoding; listed only if there are some."""
Place = tuple[int, int, str]
"""Of a run of rows: the first, from 0; its number in messages, and the text before it."""


@dataclass
class DayCount:
    """Events of one source file on one day."""

    events: int
    last: int
    """Time of the last one, microseconds since 1970, UTC."""
    first_row: str
    """Location of the first row of the file on that day, without the file's name."""


@dataclass
class Defects:
    """Rows of one source file that fail a check."""

    rows: int = 0
    of: int = 0
    """Number of rows that were checked."""
    examples: list[str] = field(default_factory=list)
    """Locations of the first ones, without the name of the file."""

    def add(self, rows: int, of: int, locations: Iterable[str]) -> None:
        """Count more rows."""
        self.rows += rows
        self.of += of
        self.examples += list(locations)[: EXAMPLES - len(self.examples)]


@dataclass(frozen=True)
class FileQuality:
    """Counts of one source file."""

    defects: dict[str, Defects]
    """Defects by check, as in section `quality` of the data set's file, without those of days."""
    days: dict[int, DayCount]
    """By day with an event, since 1970, UTC."""
    starts: dict[int, DayCount]
    """Events by the day of columns.session_start, where there is that column."""
    places: list[Place]
    """In the order of rows."""
    spellings: dict[str, int]
    """By id column: number of events whose id may be another one in an odd spelling."""

    def location(self, row: int) -> str:
        """Return where a row is, by its number from 0, without the name of the file."""
        first_row, number, text = self.places[bisect_right(self.places, row, key=itemgetter(0)) - 1]
        return f"{text}{number + row - first_row:,}"

    def with_repeats(
        self, check: str, rows: Iterable[npt.NDArray[np.int64]], of: int
    ) -> "FileQuality":
        """Return these counts with those of a check over the whole log.

        `rows` are its defects, by part of the file.
        """
        found = Defects(of=of)
        for each in rows:
            found.add(len(each), 0, map(self.location, each[:EXAMPLES].tolist()))
        return replace(self, defects={**self.defects, check: found})


class QualityCounters:
    """Counts the defects of one source file, called `shown` in messages, as it is converted."""

    def __init__(self, shown: str, spelled: Sequence[str]) -> None:
        self.n_rows = 0
        """Number of rows of the file so far."""
        self.found = FileQuality({}, {}, {}, [], dict.fromkeys(spelled, 0))
        """All counts so far."""
        self._shown = shown
        self._last_time: int | None = None

    def count_batch(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count the rows and the defects of a batch; batches come in the order of the file."""
        location = f"{raw.name}, {raw.unit} ".removeprefix(self._shown)
        self._add_place(raw.first, location)
        self._count_rows(raw, batch)
        for name in batch.readable.schema.names:
            if name != ROW:
                self._count(f"nulls.{name}", batch.readable, batch.readable[name].is_null())
        for column in batch.table.schema:
            if pa.types.is_floating(column.type):
                is_negative = pc.fill_null(pc.less(batch.table[column.name], 0), fill_value=False)
                self._count(f"negative.{column.name}", batch.table, is_negative)
        self._count_times(batch)
        for column, days in ((EVENT_TIME, self.found.days), (SESSION_START, self.found.starts)):
            if column in batch.table.schema.names:
                _add_days(days, batch.table, column, self.found.location)
        for name in self.found.spellings:
            self.found.spellings[name] += len(odd_spellings(batch.table[name]))

    def _count_rows(self, raw: RawBatch, batch: EventBatch) -> None:
        """Count rows that cannot be read, or only with escapes, or that span lines."""
        first_row = self.n_rows
        self.n_rows += raw.n_rows
        errors = (error.removeprefix(self._shown) for error in batch.errors)
        self._add(UNREADABLE, batch.dropped.get(UNREADABLE, 0), raw.n_rows, errors)
        errors = (error.removeprefix(self._shown) for error in raw.undecodable_errors)
        self._add(UNDECODABLE, len(raw.undecodable), raw.n_rows, errors)
        if raw.multiline is not None:
            rows = raw.multiline + first_row
            first = map(self.found.location, rows[:EXAMPLES].tolist())
            self._add("multiline", len(rows), raw.n_rows, first)

    def _add_place(self, number: int, text: str) -> None:
        """Note where the next rows are, unless that follows from what is known."""
        if self.found.places:
            first_row, first_number, known = self.found.places[-1]
            if (known, number - self.n_rows) == (text, first_number - first_row):
                return
        self.found.places.append((self.n_rows, number, text))

    def _count_times(self, batch: EventBatch) -> None:
        events, outside = batch.table, batch.outside
        if EVENT_TIME not in events.schema.names:
            return
        n_times = events.num_rows + outside.num_rows
        first = outside[ROW].slice(0, EXAMPLES).to_pylist()
        self._add("outside", outside.num_rows, n_times, map(self.found.location, first))
        for check, rows in batch.clock_rows.items():
            self._count(check, events, pc.is_in(events[ROW], value_set=rows))
        times = np.asarray(events[EVENT_TIME].cast(pa.int64()))
        if not len(times):
            return
        before = times[0] if self._last_time is None else self._last_time
        self._count("backwards", events, pa.array(np.diff(times, prepend=before) < 0))
        self._last_time = int(times[-1])

    def _count(self, check: str, table: pa.Table, mask: pa.Array) -> None:
        n_rows = pc.sum(mask).as_py() or 0
        rows = table[ROW].filter(mask).slice(0, EXAMPLES).to_pylist() if n_rows else []
        self._add(check, n_rows, table.num_rows, map(self.found.location, rows))

    def _add(self, check: str, rows: int, of: int, locations: Iterable[str]) -> None:
        self.found.defects.setdefault(check, Defects()).add(rows, of, locations)


def _add_days(
    days: dict[int, DayCount], events: pa.Table, column: str, location: Callable[[int], str]
) -> None:
    """Count events by the day (UTC, since 1970) in a column of times."""
    times = np.asarray(events[column].cast(pa.int64()))
    if not len(times):
        return
    of_event = times // DAY
    order = np.argsort(of_event, kind="stable")
    found, begins = np.unique(of_event[order], return_index=True)
    counts = np.diff(np.append(begins, len(order)))
    last = np.maximum.reduceat(times[order], begins)
    for day, n, latest, row in zip(found, counts, last, order[begins], strict=True):
        if (known := days.get(int(day))) is None:
            where = location(events[ROW][int(row)].as_py())
            days[int(day)] = DayCount(int(n), int(latest), where)
        else:
            known.events += int(n)
            known.last = max(known.last, int(latest))
