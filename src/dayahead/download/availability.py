"""From when and until when an item is available: times, or dates without a clock."""

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import TIMESTAMP
from dayahead.dataset.time import TimeConfig
from dayahead.download.times import EARLIEST, LATEST, Times, to_times
from dayahead.download.values import decoded

_NONE = "0000-00-00"
"""How MySQL writes that there is no date."""
_INFINITE = {"infinity": LATEST, "-infinity": EARLIEST}
"""How PostgreSQL writes for ever, and always."""
_CLOCK = re.compile(r"[\sT,]*%[HIRT].*$", re.DOTALL)
_DATE = r"^\s*\d{4}-\d\d-\d\d"


def to_limits(values: pa.Array, time: TimeConfig) -> Times:
    """Convert as `to_times` does, and what a catalogue has besides: dates without a clock.

    Text is also read by each of `time.formats` without its clock, and where the unit is a number,
    text such as 2026-03-01 as that date. 0000-00-00 is null, infinity the latest time, and
    -infinity the earliest.

    Raises:
        InvalidTimesError, pa.ArrowException: as `to_times` does.
    """
    values = decoded(values)
    if not pa.types.is_string(values.type):
        return to_times(values, time)
    values = pc.if_else(pc.starts_with(values, _NONE), None, values)
    ends = pa.nulls(len(values), TIMESTAMP)
    for text, end in _INFINITE.items():
        ends = pc.if_else(pc.equal(values, text), pa.scalar(end, TIMESTAMP), ends)
    times = _of_text(pc.if_else(ends.is_valid(), None, values), time)
    return replace(times, instants=pc.coalesce(times.instants, ends))


def _of_text(values: pa.Array, time: TimeConfig) -> Times:
    if time.formats:
        # Where the clock comes first, nothing would be left.
        short = [_CLOCK.sub("", form) or form for form in time.formats]
        return to_times(values, replace(time, format=(*dict.fromkeys([*time.formats, *short]),)))
    if time.unit == "text":
        return to_times(values, time)
    is_date = pc.match_substring_regex(values, _DATE)
    numbers = to_times(pc.if_else(is_date, None, values), time)
    dates = to_times(pc.if_else(is_date, values, None), replace(time, unit="text"))
    walls = [each.walls for each in (numbers, dates) if each.walls is not None]
    return Times(
        pc.coalesce(numbers.instants, dates.instants), pc.coalesce(*walls) if walls else None
    )
