"""Wall-clock times of a zone to instants, also where its clocks change.

In the hour that occurs twice, a file that is in order of time tells the passes apart: the second
one begins where the times go back. A file that is otherwise out of order does not; there, each
time is read as the first of the two.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, TIMESTAMP, UNITS
from dayahead.download.times import Times

_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_NEVER = -(2**62)
_PLAIN_TIME = pa.scalar(12 * UNITS["hour"], pa.timestamp("us"))
SLACKS = (0, 5 * UNITS["minute"], None)
"""Microseconds by which rows of a file in order of time may go back, as where several servers
write it, from strict to lenient; None: the file is not in order."""


class OutOfOrderError(Exception):
    """A file with times that occur twice is less in order than was assumed."""


@dataclass(frozen=True)
class Localised:
    """The times of a batch's rows, all instants."""

    instants: pa.Array
    """TIMESTAMP; null where there is no time."""
    ambiguous: _Flags
    """Rows with a time that occurs twice."""
    nonexistent: _Flags
    """Rows with a time that the clocks left out; it is read as if they had not changed yet."""


@dataclass
class ZoneClock:
    """Converts the rows of one file, batch after batch: what was seen decides what follows.

    So how the file is cut into batches changes nothing.
    """

    zone: str
    slack: int | None = None
    """Microseconds by which rows may go back; None: do not go by the order of rows."""
    _latest: int = _NEVER
    """Latest instant so far."""
    _in_order: bool = True
    _any_ambiguous: bool = False
    _day: int = _NEVER
    """Day (of the wall clock) of the hour below."""
    _highest: int = _NEVER
    """Latest wall-clock time in the hour that occurs twice."""
    _is_second: bool = False

    def localise(self, times: Times) -> Localised:
        """Convert a batch.

        Raises:
            OutOfOrderError: rows go back by more than `slack` in a file with ambiguous times.
        """
        none = np.zeros(len(times.instants), bool)
        if times.walls is None:
            self._follow(times.instants, none)
            return Localised(times.instants, none, none)
        try:
            local = pc.assume_timezone(times.walls, self.zone)
        except pa.ArrowInvalid:
            return self._over_changes(times.walls, times.instants)
        instants = _either(local.cast(TIMESTAMP), times.instants)
        self._follow(instants, none)
        return Localised(instants, none, none)

    def _over_changes(self, given: pa.Array, instants: pa.Array) -> Localised:
        first, second, missing = _candidates(given, self.zone)
        walls = np.asarray(pc.fill_null(given.cast(pa.int64()), 0))
        ambiguous = first != second
        rows = np.flatnonzero(ambiguous)
        if self.slack is not None:
            first[rows] = np.where(self._second_pass(walls[rows]), second[rows], first[rows])
        local = pa.array(first, mask=np.asarray(given.is_null())).cast(TIMESTAMP)
        instants = _either(local, instants)
        self._follow(instants, ambiguous)
        return Localised(instants, ambiguous, missing)

    def _second_pass(self, walls: _Ints) -> _Flags:
        """Say which of the ambiguous times, in the order of rows, are of the second pass."""
        assert self.slack is not None
        is_second = np.zeros(len(walls), bool)
        days = walls // DAY
        for part in np.split(np.arange(len(walls)), np.flatnonzero(np.diff(days)) + 1):
            if not len(part):
                continue
            if days[part[0]] != self._day:
                self._day, self._highest, self._is_second = int(days[part[0]]), _NEVER, False
            highest = np.maximum.accumulate(np.append(self._highest, walls[part]))
            goes_back = walls[part] < highest[:-1] - self.slack
            is_second[part] = np.logical_or.accumulate(goes_back) | self._is_second
            self._highest, self._is_second = int(highest[-1]), bool(is_second[part[-1]])
        return is_second

    def _follow(self, instants: pa.Array, ambiguous: _Flags) -> None:
        """Note whether rows go back."""
        if self.slack is None:
            return
        known = np.asarray(instants.drop_null().cast(pa.int64()))
        latest = np.maximum.accumulate(np.append(self._latest, known))
        if len(known):
            self._in_order &= bool((known >= latest[:-1] - self.slack).all())
        self._latest = int(latest[-1])
        self._any_ambiguous |= bool(ambiguous.any())
        if self._any_ambiguous and not self._in_order:
            raise OutOfOrderError


def _either(local: pa.Array, instants: pa.Array) -> pa.Array:
    return local if instants.null_count == len(instants) else pc.coalesce(local, instants)


def _candidates(walls: pa.Array, zone: str) -> tuple[_Ints, _Ints, _Flags]:
    """Return first and second instant of each time (equal but for ambiguous ones); any for null.

    And which times do not exist.
    """
    # For null a time that is in all zones and occurs once.
    given = pd.DatetimeIndex(pc.fill_null(walls, _PLAIN_TIME).to_pandas()).as_unit("us")
    none = np.zeros(len(given), bool)
    # pandas moves a time that does not exist by what it is given: the hour that is left out.
    first, second = (
        given.tz_localize(zone, ambiguous=none | is_first, nonexistent="NaT")
        for is_first in (True, False)
    )
    missing = np.asarray(first.isna())
    hours = [first.asi8, second.asi8]
    if missing.any():
        before = given - pd.Timedelta(days=1)
        shifted = before.tz_localize(zone, ambiguous=none, nonexistent="shift_forward")
        for each in hours:
            each[missing] = (shifted.asi8 + DAY)[missing]
    return hours[0], hours[1], missing
