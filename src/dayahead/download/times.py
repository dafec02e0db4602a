"""Values of a column of times, in every unit and way of writing, to microseconds since 1970.

What is a time but outside `EARLIEST` to `LATEST` becomes one of these two, so that nothing
overflows; `time.between` lies within them, and decides what is dropped.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, TIMESTAMP
from dayahead.dataset.time import DIRECTIVES, ZONE_PATTERN, TimeConfig, format_pattern
from dayahead.download.time_fields import read_fields
from dayahead.download.values import EXACT, InvalidValuesError, decoded, to_int

MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
EARLIEST, LATEST = (int(np.datetime64(year, "us").astype(int)) for year in ("1900", "2250"))
_WALL = pa.timestamp("us")
_EXCEL_EPOCH = -25_569 * DAY
"""1899-12-30: Excel counts 1900-02-29, a day that was not, so its days are right from March on."""
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_SECOND = {"s": 0, "ms": 3, "us": 6, "ns": 9, "excel": -5}
"""Power of ten that is about a second."""
_CLOCK = (
    r"(?P<h>\d\d?):(?P<mi>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?)?"
    r"(?:\s*(?P<ap>[AaPp]\.?[Mm]\b\.?))?"
)
_REST = rf"(?:[\s,:Tt]\s*(?:at )?{_CLOCK})?\s*(?:{ZONE_PATTERN})?"
_WEEKDAY = r"(?:[A-Za-z]+day|[A-Za-z]{3}),?\s+"
_MONTH = DIRECTIVES["b"]
DIALECTS = (
    rf"(?P<y>\d{{4}})[-/.](?P<mo>\d\d?)[-/.](?P<d>\d\d?){_REST}",  # ISO 8601, with slashes
    # ISO 8601 without signs. Years 19 to 21: other numbers of this length are Unix times.
    r"(?P<y>(?:19|20|21)\d\d)(?P<mo>\d\d)(?P<d>\d\d)"
    r"(?:[Tt ]?(?P<h>\d\d)(?P<mi>\d\d)(?:(?P<s>\d\d)(?:[.,]?(?P<f>\d{1,9}))?)?)?"
    rf"\s*(?:{ZONE_PATTERN})?",
    # RFC 2822, HTTP, web servers (04/Mar/2024:09:05:07 +0000).
    rf"(?:{_WEEKDAY})?(?P<d>\d\d?)[-/ .]{_MONTH}[-/ ,]+(?P<y>\d{{4}}){_REST}",
    # Mar 4, 2024 9:05:07 AM; Mon Mar 04 2024 09:05:07 GMT+0000 (Coordinated Universal Time).
    rf"(?:{_WEEKDAY})?{_MONTH} +(?P<d>\d\d?)(?:st|nd|rd|th)?,? +(?P<y>\d{{4}}){_REST}",
    # ctime and date(1): Mon Mar  4 09:05:07 UTC 2024.
    rf"(?:{_WEEKDAY})?{_MONTH} +(?P<d>\d\d?) +{_CLOCK}(?: {ZONE_PATTERN})? +(?P<y>\d{{4}})",
)
"""Ways to write a time in which the order of day and month is clear, as regular expressions."""
_FAR = r"^[+-]?\d{5,}-\d\d-\d\d|^-?\d{4}-\d\d-\d\d.*BC$|^0000-00-00"
"""Times of Java and databases that no calendar here has."""
_MARKS = r"^[\s\"']+|[\s\"']+$"


class InvalidTimesError(InvalidValuesError):
    """Some values are no times."""

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        super().__init__("not a time", mask)


@dataclass(frozen=True)
class Times:
    """Times of a column's rows; a row has at most one of both, and null in the other."""

    instants: pa.Array
    """Microseconds, UTC."""
    walls: pa.Array | None = None
    """Microseconds on the clock of time.zone, where no UTC offset is known; None: nowhere."""


def to_times(values: pa.Array, time: TimeConfig) -> Times:
    """Convert text, numbers, or a date or time type to times.

    Raises:
        InvalidTimesError: some values are no times.
        pa.ArrowException: the type has no times.
    """
    values = decoded(values)
    if pa.types.is_temporal(values.type):
        return _of_temporal(values, time)
    if time.unit == "excel":
        # A float64 holds a day of our time to a microsecond; Excel itself shows milliseconds.
        clock = pc.multiply(pc.round(_numbers(values, time.unit, DAY / 1000)), 1000.0)
        clock = pc.add(clock, float(_EXCEL_EPOCH))
        return _of_walls(clipped(clock).cast(pa.int64()).cast(_WALL), time.zone)
    if time.unit != "text":
        return Times(_unix_times(values, time.unit).cast(TIMESTAMP))
    return _of_text(values.cast(pa.string()), time)


def _of_walls(walls: pa.Array, zone: str) -> Times:
    if zone == "UTC":
        return Times(walls.cast(TIMESTAMP))
    return Times(pa.nulls(len(walls), TIMESTAMP), walls)


def clipped(values: pa.Array, low: int = EARLIEST, high: int = LATEST) -> pa.Array:
    """Replace numbers below `low` by it, and those above `high`; null stays."""
    ends = pa.array([low, high]).cast(values.type)
    values = pc.max_element_wise(values, ends[0], skip_nulls=False)
    return pc.min_element_wise(values, ends[1], skip_nulls=False)


def _scaled(numbers: pa.Array, factor: int) -> pa.Array:
    """Multiply whole numbers; those out of range become the nearest end of it."""
    return pc.multiply(clipped(numbers, EARLIEST // factor, LATEST // factor), factor)


def _of_temporal(values: pa.Array, time: TimeConfig) -> Times:
    kind = values.type
    if pa.types.is_date32(kind):
        numbers = _scaled(values.cast(pa.int32()).cast(pa.int64()), DAY)
    elif pa.types.is_date64(kind):
        numbers = _scaled(values.cast(pa.int64()), 1000)
    elif pa.types.is_timestamp(kind):
        numbers = _of_unix(values.cast(pa.int64()), kind.unit)
        if kind.tz is not None:
            return Times(numbers.cast(TIMESTAMP))
    else:
        raise pa.ArrowInvalid("a duration, or a time without a date")
    return _of_walls(numbers.cast(_WALL), time.zone)


def _of_unix(numbers: pa.Array, unit: str) -> pa.Array:
    """Return whole numbers in a unit as microseconds, truncated where they are nanoseconds."""
    if unit == "ns":
        return clipped(pc.divide(numbers, 1000))
    return _scaled(numbers, MICROSECONDS[unit])


def _unix_times(values: pa.Array, unit: str) -> pa.Array:
    try:
        return _of_unix(to_int(values), unit)
    except pa.ArrowInvalid:  # fractions, powers, beyond 64 bits
        # A float64 of seconds is exact to the microsecond until 2200.
        factor = MICROSECONDS.get(unit, 1e-3)
        return clipped(pc.round(_numbers(values, unit, factor))).cast(pa.int64())


def _numbers(values: pa.Array, unit: str, factor: float) -> pa.Array:
    """Return numbers as float64, times a factor.

    Raises:
        InvalidTimesError: a text is no number, or a number has lost digits.
    """
    if pa.types.is_string(values.type):
        values = pc.replace_substring_regex(values, _MARKS, "")
        values = pc.replace_substring_regex(values, r"^(\d{5,}),(\d+)$", r"\1.\2")
        bad = pc.invert(pc.match_substring_regex(values, _NUMBER))
        power = pc.extract_regex(values, r"^[+-]?\d*\.?(?P<f>\d*)[eE]\+?(?P<e>-?\d{1,5})$")
        exponent = pc.cast(pc.if_else(power.is_valid(), power.field("e"), None), pa.int64())
        # The last digit that is written must be worth at most a second.
        last = pc.subtract(exponent, pc.utf8_length(power.field("f")))
        bad = pc.or_(bad, pc.fill_null(pc.greater(last, _SECOND[unit]), fill_value=False))
    elif pa.types.is_floating(values.type):
        bad = pc.is_nan(values)
        if values.type == pa.float32():
            bad = pc.or_(bad, pc.greater(pc.abs(values), EXACT[32]))
    else:
        bad = pa.nulls(len(values), pa.bool_())
    _check(bad)
    return pc.multiply(values.cast(pa.float64(), safe=False), float(factor))


def _check(bad: pa.Array) -> None:
    if pc.any(bad).as_py():
        raise InvalidTimesError(np.asarray(pc.fill_null(bad, fill_value=False)))


def _of_text(text: pa.Array, time: TimeConfig) -> Times:
    if time.formats:
        return _of_patterns(text, [format_pattern(form) for form in time.formats], time.zone)
    with suppress(pa.ArrowInvalid):
        # The first text says which way to try: a cast that fails takes as long as the patterns.
        _of_plain(text.drop_null().slice(0, 1), time.zone)
        return _of_plain(text, time.zone)
    return _of_patterns(text, DIALECTS, time.zone)


def _of_plain(text: pa.Array, zone: str) -> Times:
    """Read ISO 8601 as Arrow does, ten times as fast: either all rows have an offset, or none."""
    if pc.all(pc.ends_with(text, " UTC")).as_py():
        text, zone = pc.utf8_slice_codeunits(text, 0, -4), "UTC"
    with suppress(pa.ArrowInvalid):
        text.drop_null().slice(0, 1).cast(TIMESTAMP)
        return Times(_bounded(text.cast(TIMESTAMP)))
    return _of_walls(_bounded(text.cast(_WALL)), zone)


def _bounded(times: pa.Array) -> pa.Array:
    numbers = times.cast(pa.int64())
    low, high = pc.min_max(numbers).as_py().values()
    if low is None or EARLIEST <= low <= high <= LATEST:
        return times
    return clipped(numbers).cast(times.type)


def _of_patterns(text: pa.Array, patterns: Sequence[str], zone: str) -> Times:
    """Read each text by the first pattern that fits."""
    text = pc.replace_substring_regex(text, _MARKS, "")
    unread = np.asarray(text.is_valid())
    times, has_offset = np.zeros(len(text), np.int64), np.zeros(len(text), bool)
    for pattern in patterns:
        rows = np.flatnonzero(unread)
        fields = pc.extract_regex(text.take(pa.array(rows)), rf"^\[?(?:{pattern})\]?$")
        rows = rows[np.asarray(fields.is_valid())]
        found = read_fields(fields.drop_null())
        rows = rows[found.is_time]
        times[rows], has_offset[rows] = found.times[found.is_time], found.has_offset[found.is_time]
        unread[rows] = False
        if not unread.any():
            break
    if unread.any():
        far = np.asarray(pc.fill_null(pc.match_substring_regex(text, _FAR), fill_value=False))
        times[unread & far], has_offset[unread & far] = LATEST, True
        _check(pa.array(unread & ~far))
    return _mixed(pa.array(times, mask=np.asarray(text.is_null())), has_offset, zone)


def _mixed(times: pa.Array, has_offset: npt.NDArray[np.bool_], zone: str) -> Times:
    times, known = clipped(times), pa.array(has_offset)
    if zone == "UTC" or has_offset.all():
        return Times(times.cast(TIMESTAMP))
    walls = pc.if_else(known, None, times).cast(_WALL)
    return Times(pc.if_else(known, times, None).cast(TIMESTAMP), walls)
