"""Whether the times of a file are outside `time.between` only because of `time.unit`."""

from collections import Counter
from collections.abc import Callable

import pyarrow.compute as pc

from dayahead.core.columns import ROW
from dayahead.core.errors import SourceError
from dayahead.dataset.time import TimeConfig
from dayahead.download.events import EventBatch
from dayahead.download.time_advice import iso, named, text_of, units_inside

_MOST = 0.5
"""Share of a file's times that must be outside, and of these inside in the other unit."""


class UnitCheck:
    """Counts the times of one file that another unit would put inside `time.between`."""

    def __init__(self, time: TimeConfig) -> None:
        self._time = time
        self._counts: Counter[str] = Counter()
        self._n_times = self._n_outside = 0
        self._first: dict[str, str] = {}

    def add(self, batch: EventBatch, location: Callable[[int], str]) -> None:
        """Count a batch; `location` returns where a row is, by its number."""
        n_outside, values = batch.outside.num_rows, batch.outside_values
        self._n_times += batch.table.num_rows + n_outside
        self._n_outside += n_outside
        for unit, numbers in units_inside(values, self._time) if n_outside else ():
            self._counts[unit] += len(numbers) - numbers.null_count
            n = pc.index(numbers.is_valid(), value=True).as_py()
            where, shown = location(batch.outside[ROW][n].as_py()), iso(numbers[n].as_py())
            self._first.setdefault(unit, f"{where}: {text_of(values[n])} is then {shown}")

    def check(self, name: str) -> None:
        """Check that most times are not outside only because of the unit.

        Raises:
            SourceError: they are; names the unit in which they are inside.
        """
        for unit, count in self._counts.most_common(1):
            if count > _MOST * self._n_outside and self._n_outside > _MOST * self._n_times:
                limits = " to ".join(map(iso, self._time.limits))
                raise SourceError(
                    f"{name}: {self._n_outside:,} of {self._n_times:,} times are outside "
                    f"{limits} as {named(self._time.unit)}, and {count:,} of them "
                    f"inside as {named(unit)} ({name}{self._first[unit]}). Set time.unit: {unit} "
                    f"in the data set's file (or time.between, if the log is of that time)"
                )
