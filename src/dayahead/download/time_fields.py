"""Fields of times that regular expressions found, to microseconds since 1970."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, SECOND, UNITS

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTH_OF = {name[:n]: number for number, name in enumerate(_MONTHS, 1) for n in (3, len(name))}
_MONTH_OF["sept"] = 9
_HOUR, _MINUTE = UNITS["hour"], UNITS["minute"]
_NOON = 12
_FIRST_SHORT_YEAR = 69
"""%y is 1969 to 2068, as in POSIX."""
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FoundTimes:
    """Times, one a row."""

    times: _Ints
    """Microseconds since 1970, UTC where an offset is known."""
    has_offset: _Flags
    is_time: _Flags
    """Whether the fields make a time: not on 30 February, not at 25:00."""


def read_fields(fields: pa.StructArray) -> FoundTimes:
    """Add up the fields of `dataset.time.DIRECTIVES`; one that is missing or empty is 0."""
    names = {field.name for field in fields.type}

    def number(name: str) -> _Ints:
        if name not in names:
            return np.zeros(len(fields), np.int64)
        text = fields.field(name)
        return np.asarray(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))

    short = number("yy")
    century = np.where(short < _FIRST_SHORT_YEAR, 2000, 1900)
    years = number("y") if "y" in names else century + short
    days, is_date = _days(years, _months(fields), number("d"))
    hours, is_hour = _hours(fields, number("h") + number("h12"))
    minutes, seconds = number("mi"), number("s")
    # 24:00 is the end of the day; a leap second is the first one of the next minute.
    is_hour &= (hours < 24) | ((hours == 24) & (minutes == 0) & (seconds == 0))  # noqa: PLR2004
    is_time = is_date & is_hour & (minutes < 60) & (seconds <= 60)  # noqa: PLR2004
    times = days * DAY + hours * _HOUR + minutes * _MINUTE + seconds * SECOND
    if "f" in names:
        digits = pc.utf8_slice_codeunits(pc.utf8_rpad(fields.field("f"), 6, "0"), 0, 6)
        times += np.asarray(digits.cast(pa.int64()))
    offsets, has_offset, is_offset = _offsets(fields)
    return FoundTimes(times - offsets, has_offset, is_time & is_offset)


def _months(fields: pa.StructArray) -> _Ints:
    if "mon" not in {field.name for field in fields.type}:
        return np.asarray(fields.field("mo").cast(pa.int64()))
    return _looked_up(pc.utf8_lower(fields.field("mon")), lambda name: _MONTH_OF.get(name, 0))


def _days(years: _Ints, months: _Ints, days: _Ints) -> tuple[_Ints, _Flags]:
    is_month = (months >= 1) & (months <= len(_MONTHS))
    month = np.where(is_month, (years - 1970) * 12 + months - 1, 0)
    first, after = (
        each.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        for each in (month, month + 1)
    )
    is_date: _Flags = is_month & (days >= 1) & (days <= after - first)
    return first + days - 1, is_date


def _hours(fields: pa.StructArray, hours: _Ints) -> tuple[_Ints, _Flags]:
    if "ap" not in {field.name for field in fields.type}:
        return hours, np.ones(len(hours), bool)
    half = pc.utf8_slice_codeunits(pc.utf8_lower(fields.field("ap")), 0, 1)
    is_am, is_pm = np.asarray(pc.equal(half, "a")), np.asarray(pc.equal(half, "p"))
    is_half = is_am | is_pm
    is_hour: _Flags = ~is_half | ((hours >= 1) & (hours <= _NOON))
    return np.where(is_half, hours % _NOON + _NOON * is_pm, hours), is_hour


def _offsets(fields: pa.StructArray) -> tuple[_Ints, _Flags, _Flags]:
    """Return UTC offsets, whether a row has one, and whether it is one (not +99:99)."""
    if "z" not in {field.name for field in fields.type}:
        none = np.zeros(len(fields), np.int64)
        return none, none > 0, none == 0
    text = fields.field("z")
    bad = np.iinfo(np.int64).max
    offsets = _looked_up(text, lambda offset: _offset(offset, bad))
    return np.where(offsets == bad, 0, offsets), np.asarray(pc.not_equal(text, "")), offsets != bad


def _offset(text: str, bad: int) -> int:
    found = re.search(r"([+-])(\d\d):?(\d\d)?:?(\d\d)?$", text)
    if not found:
        return 0  # Z, UTC, GMT or none
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    if hours >= 24 or minutes >= 60 or seconds >= 60:  # noqa: PLR2004
        return bad
    size = hours * _HOUR + minutes * _MINUTE + seconds * SECOND
    return -size if found[1] == "-" else size


def _looked_up(text: pa.Array, number: Callable[[str], int]) -> _Ints:
    """Return the number of each text; each distinct one is looked up once."""
    coded = text.dictionary_encode()
    numbers = np.array([number(each) for each in coded.dictionary.to_pylist()], np.int64)
    found: _Ints = numbers[np.asarray(coded.indices)]
    return found
