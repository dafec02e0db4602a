"""What may be wrong with a time: another unit, or a format that only the user knows."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.dataset.time import TimeConfig, TimeUnit
from dayahead.download.times import to_times

_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns", "excel", "text")
_DAY_AND_MONTH = re.compile(
    r"(?P<first>\d{1,2})(?P<sign>[-./])(?P<second>\d{1,2}|[A-Za-z]{3,})(?P=sign)"
    r"(?P<year>\d{4}|\d\d)(?P<rest>\D.*)?"
)
_POWER = re.compile(r"[+-]?[\d.]+[eE][+-]?\d+")
_CLOCK = re.compile(
    r"(?P<sep>[\sT,-]+)\d{1,2}(?P<sign>[:.])\d\d(?P<s>(?P=sign)\d\d)?(?P<f>[.,]\d+)?"
    r"(?P<ap>\s*[AaPp][Mm])?(?P<z>\s*(?:Z|[+-]\d\d.*))?"
)


def units_inside(values: pa.Array, time: TimeConfig) -> Iterator[tuple[str, pa.Array]]:
    """Yield other units in which some of the values lie inside `time.between`, and their times.

    Times are null where they are outside.
    """
    first, end = time.limits
    for unit in _UNITS:
        if unit == time.unit or pa.types.is_temporal(values.type):
            continue
        # A zone moves times by hours at most: all that counts is whether a unit is possible.
        other = replace(time, unit=unit, format=None, zone="UTC")
        try:
            numbers = to_times(values, other).instants.cast(pa.int64())
        except pa.ArrowException:
            continue
        is_inside = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
        if pc.any(is_inside).as_py():
            yield unit, pc.if_else(is_inside, numbers, None)


def advice(value: pa.Scalar, time: TimeConfig) -> str:
    """Return what to set for a value that is no time, or nothing."""
    if pa.types.is_nested(value.type) or pa.types.is_temporal(value.type):
        return ""
    text = text_of(value)
    with_value = pa.array([text])
    for unit, numbers in units_inside(with_value, time):
        shown = iso(numbers[0].as_py())
        return f". As {named(unit)} it is {shown}: set time.unit: {unit} in the data set's file"
    if time.unit != "text" and _POWER.fullmatch(text):
        return "; its last digits are lost: write all of them, without a power of ten"
    forms = formats_of(text) if time.unit == "text" else []
    if not forms:
        return ""
    if time.formats:
        either = " or ".join(f'"{form}"' for form in forms)
        return f"; time.format may be a list: add {either} in the data set's file"
    known = "the order of its day and month is not known" if len(forms) > 1 else ""
    known = known or "such a time is only read by a format"
    either = " or ".join(f'time.format: "{form}"' for form in forms)
    return f"; {known}: set {either} in the data set's file"


def formats_of(text: str) -> list[str]:
    """Return the formats that may have written a time such as 04.03.2024 9:05 or 04-MAR-24."""
    date = _DAY_AND_MONTH.fullmatch(text)
    if not date:
        return []
    clock = _clock_format(date["rest"] or "")
    if clock is None:
        return []
    sign, year = date["sign"], "%Y" if len(date["year"]) > 2 else "%y"  # noqa: PLR2004
    if not date["second"].isdigit():
        orders = [("%d", "%b", year)]
    else:
        orders = [("%d", "%m", year), ("%m", "%d", year)]
        if year == "%y":
            orders.append(("%y", "%m", "%d"))
    forms = [sign.join(order) + clock for order in orders]
    return [form for form in forms if _is_read(text, form)]


def _clock_format(text: str) -> str | None:
    if not text:
        return ""
    found = _CLOCK.fullmatch(text)
    if not found:
        return None
    sign = found["sign"]
    parts = ["%I" if found["ap"] else "%H", "%M", *(["%S"] if found["s"] else [])]
    fraction = f"{found['f'][0]}%f" if found["f"] else ""
    half, zone = (" %p" if found["ap"] else ""), ("%z" if found["z"] else "")
    blank = " " if zone and found["z"].startswith(" ") else ""
    return found["sep"] + sign.join(parts) + fraction + half + blank + zone


def _is_read(text: str, form: str) -> bool:
    with suppress(pa.ArrowException, ValueError):
        to_times(pa.array([text]), TimeConfig(column="", format=form))
        return True
    return False


def text_of(value: pa.Scalar) -> str:
    """Return a value as the source has it, for messages."""
    found = value.as_py()
    text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
    return text.strip().strip('"')


def named(unit: str) -> str:
    """Return `time.unit` for messages."""
    names = {"text": "a date in text", "excel": "days of Excel"}
    return names.get(unit, f"Unix time in {unit}")


def iso(microseconds: int) -> str:
    """Return a time for messages: to the second, a midnight as its date."""
    moment = np.datetime64(microseconds, "us").astype("datetime64[s]")
    return str(moment).removesuffix("T00:00:00")
