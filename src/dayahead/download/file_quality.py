"""What is counted in one source file: defects, and events by day."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dayahead.core.columns import DAY, ROW
from dayahead.download.batches import EXAMPLES

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
    starts: dict[int, DayCount] = field(default_factory=dict)
    """Events by the day of columns.session_start, where there is that column."""
    places: list[Place] = field(default_factory=list)
    """In the order of rows."""
    spellings: dict[str, int] = field(default_factory=dict)
    """By id column: number of events whose id may be another one in an odd spelling."""

    def location(self, row: int) -> str:
        """Return where a row is in messages, without the name of the file."""
        return place_of(self.places, row)

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


def place_of(places: Sequence[Place], row: int) -> str:
    """Return where a row is, by its number from 0, without the name of the file."""
    first_row, number, text = places[bisect_right(places, row, key=itemgetter(0)) - 1]
    return f"{text}{number + row - first_row:,}"


def add_days(
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
