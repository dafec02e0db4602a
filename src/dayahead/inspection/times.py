"""Which column holds the time of an event, and how it is written."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, UNITS
from dayahead.core.errors import SourceError
from dayahead.core.ragged import Ints
from dayahead.dataset.time import TimeConfig, TimeUnit
from dayahead.download.time_advice import formats_of, iso, named
from dayahead.download.times import InvalidTimesError, to_times
from dayahead.inspection.finding import Finding
from dayahead.inspection.names import name_score, zone_of
from dayahead.inspection.table import Column, Table

NEVER = np.iinfo(np.int64).min
"""Stands for no time."""
_FIRST = int(np.datetime64("1995-01-01", "us").astype(int))
_NUMERIC: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
_TRIED = 200
_NIGHT = 4
"""Hour of the clock about which people are least active."""


@dataclass(frozen=True)
class Reading:
    """A column read as times."""

    config: TimeConfig
    times: Ints
    """Microseconds since 1970 by row, NEVER where there is none; without zone as if in UTC."""
    formats: tuple[str, ...] = ()
    """Every format that fits, where one is needed."""
    has_zone: bool = True
    unread: int = 0
    """Values that are no times."""
    strays: int = 0
    """Times far from all others, NEVER in `times`."""

    @property
    def is_date(self) -> bool:
        """Whether there are only dates."""
        return not (self.times[self.times != NEVER] % DAY).any()

    @property
    def is_ambiguous(self) -> bool:
        """Whether the order of day and month is not known."""
        return len(self.formats) > 1


def find_time(table: Table) -> tuple[Reading, set[str], list[Finding]]:
    """Return the column of times, all columns that hold times, and why.

    Raises:
        SourceError: there is none: it is a table of items or users.
    """
    found = {name: each for name, column in table.columns.items() if (each := read(column))}
    names = list(found)
    scores = {name: _score(found[name], table.columns[name], len(names)) for name in names}
    best = max(names, key=lambda name: scores[name], default=None)
    if best is None or scores[best] <= 0:
        raise SourceError(
            f"no column holds times ({', '.join(table.columns)[:300]}): this is a table of items "
            f"or users, not a log of events. Expected a row for each event, with its time; give a "
            f"table of items beside its log: dayahead inspect LOG --items FILE"
        )
    reading = _without_strays(_with_zone(found[best], table))
    others = [name for name in names if name != best and scores[name] > 0]
    return reading, {name for name in names if scores[name] > 0}, _findings(reading, others, table)


def read(column: Column) -> Reading | None:
    """Read a column as times in the first unit or format that fits; None: in none."""
    time = TimeConfig(column=column.name)
    if not column.n:
        return None
    if column.kind == "time":
        try:
            return _reading(column, time, column.values)
        except pa.ArrowException:
            return None
    values = column.distinct
    if column.kind in ("int", "number") and (unit := _unit_of(values, column)):
        return _reading(column, replace(time, unit=unit), values)
    first = values.slice(0, _TRIED)
    with suppress(pa.ArrowException):
        to_times(first, time)
        return _reading(column, time, values)
    return _formatted(column, time, first)


def _unit_of(values: pa.Array, column: Column) -> TimeUnit | None:
    units: tuple[TimeUnit, ...] = ("excel",) if name_score(column.name, "time") else ()
    for unit in (*_NUMERIC, *units):
        with suppress(pa.ArrowException):
            times = to_times(values, TimeConfig(column="", unit=unit))
            numbers = np.asarray(times.instants.cast(pa.int64()))
            tomorrow = int(datetime.now(UTC).timestamp() * 1e6) + DAY
            if ((numbers >= _FIRST) & (numbers < tomorrow)).mean() > 0.9:  # noqa: PLR2004
                return unit
    return None


def _formatted(column: Column, time: TimeConfig, first: pa.Array) -> Reading | None:
    forms = list(dict.fromkeys(form for text in first[:3].to_pylist() for form in formats_of(text)))
    readings = {}
    for form in forms:
        with suppress(pa.ArrowException):
            readings[form] = _reading(column, replace(time, format=form), column.distinct)
    if not readings:
        return None
    least = min(each.unread for each in readings.values())
    # Where day and month are not known: that of the shorter log, as the wrong one scatters days.
    fitting = sorted((_span(each), form) for form, each in readings.items() if each.unread == least)
    return replace(readings[fitting[0][1]], formats=tuple(form for _, form in fitting))


def _span(reading: Reading) -> int:
    valid = reading.times[reading.times != NEVER]
    return int(np.ptp(valid)) if len(valid) else 0


def _reading(column: Column, time: TimeConfig, values: pa.Array) -> Reading:
    """Convert a column; up to a hundredth of its values may be no times.

    Raises:
        ArrowException: more are none.
    """
    unread = np.zeros(len(values), bool)
    try:
        times = to_times(values, time)
    except InvalidTimesError as error:
        unread = error.mask
        if unread.mean() > 0.01:  # noqa: PLR2004
            raise
        times = to_times(pc.if_else(pa.array(unread), None, values), time)
    parts = [times.instants.cast(pa.int64())]
    parts += [times.walls.cast(pa.int64())] if times.walls is not None else []
    numbers = np.asarray(pc.fill_null(pc.coalesce(*parts), NEVER))
    if column.kind != "time":
        numbers = np.append(numbers, NEVER)[column.codes]
    has_zone = time.unit in _NUMERIC or _has_zone(column, values, time)
    return Reading(time, numbers, has_zone=has_zone, unread=int(unread.sum()))


def _has_zone(column: Column, values: pa.Array, time: TimeConfig) -> bool:
    """Return whether the values have UTC offsets: only then another zone changes nothing."""
    if column.kind == "time":
        return getattr(values.type, "tz", None) is not None
    with suppress(pa.ArrowException):
        first = to_times(values.slice(0, _TRIED), replace(time, zone="Asia/Tokyo"))
        return first.walls is None or first.walls.null_count == len(first.walls)
    return False


def _score(reading: Reading, column: Column, n_readings: int) -> float:
    is_number = reading.config.unit != "text"
    named_ = name_score(column.name, "time")
    if is_number and not named_ and not column.name.startswith("column_") and n_readings > 1:
        return 0.0
    of_session = name_score(column.name, "session_id") + name_score(column.name, "start")
    fine = len(column.distinct) / max(1, column.n)
    return 1 + named_ + 0.5 * fine - 0.8 * reading.is_date - column.nulls - of_session


def _with_zone(reading: Reading, table: Table) -> Reading:
    zone, _ = zone_of(list(table.columns))
    if reading.has_zone or not zone:
        return reading
    return replace(reading, config=replace(reading.config, zone=zone))


def _without_strays(reading: Reading) -> Reading:
    valid = reading.times != NEVER
    low, high = np.quantile(reading.times[valid], (0.01, 0.99))
    margin = (high - low) / 2 + 30 * DAY
    is_far = valid & ((reading.times < low - margin) | (reading.times > high + margin))
    return replace(reading, times=np.where(is_far, NEVER, reading.times), strays=int(is_far.sum()))


def _findings(reading: Reading, others: list[str], table: Table) -> list[Finding]:
    config, valid = reading.config, reading.times[reading.times != NEVER]
    first, last = (iso(int(each)) for each in (valid.min(), valid.max()))
    named_ = name_score(config.column, "time")
    why = "its name, and " * bool(named_) + f"its values are times from {first} to {last}"
    why += f"; others: {', '.join(others)}" if others else ""
    found = [Finding("time.column", config.column, "certain" if named_ == 1 else "likely", why)]
    if reading.is_ambiguous:
        why = "NOT KNOWN whether day or month comes first: no value is above 12. Check it"
        found.append(Finding("time.format", " or ".join(reading.formats), "unsure", why))
    elif reading.formats:
        why = "the only order of day and month that all values of the sample have"
        found.append(Finding("time.format", reading.formats[0], "certain", why))
    else:
        why = f"{named(config.unit)}, such as {_shown(table.columns[config.column])}"
        found.append(Finding("time.unit", config.unit, "certain", why))
    if reading.strays:
        why = f"{reading.strays} times of the sample are far from all others, and are set aside"
        found.append(Finding("time.between", "none", "certain", f"{why}; see quality.stray"))
    if reading.is_date:
        why = "dates without a clock: events of a day are in the order of the file"
        clocks = [name for name, each in table.columns.items() if _is_clock(each)]
        why += f"; join {clocks[0]} to it in the source" if clocks else "; time.offset may add one"
        found.append(Finding("time.offset", "none", "unsure", f"NOT KNOWN; {why}"))
    return [*found, _zone(reading, table)]


def _is_clock(column: Column) -> bool:
    found = pc.match_substring_regex(column.distinct, r"^\d\d?:\d\d(:\d\d)?$")
    return bool(column.n and pc.all(found).as_py())


def _shown(column: Column) -> str:
    return str(column.distinct[0].as_py()) if column.n else ""


def _zone(reading: Reading, table: Table) -> Finding:
    hint = "" if reading.is_date else quiet_hours(reading.times)
    if reading.has_zone:
        return Finding("time.zone", "UTC", "certain", "the values are moments of UTC" + hint)
    zone, words = zone_of(list(table.columns))
    if zone:
        why = f"NOT KNOWN; no value has a UTC offset, and {', '.join(words[:3])} hint at it"
        return Finding("time.zone", zone, "unsure", why + hint)
    return Finding("time.zone", "UTC", "unsure", "NOT KNOWN: no value has a UTC offset" + hint)


def quiet_hours(times: Ints) -> str:
    """Return words about the hours with the fewest events; empty: less than two days."""
    valid = times[times != NEVER]
    if not len(valid) or np.ptp(valid) < 2 * DAY:
        return ""
    counts = np.bincount(valid // UNITS["hour"] % 24, minlength=24)
    around = np.stack([np.roll(counts, shift) for shift in range(-4, 5)]).sum(axis=0)
    quiet = int(np.argmin(around))
    if around[quiet] > around.max() / 3:
        return ""
    offset = (_NIGHT - quiet + 12) % 24 - 12
    if abs(offset) <= 2:  # noqa: PLR2004
        return f"; fewest events about {quiet}:00 of it, as on the clock of its users"
    return (
        f"; fewest events about {quiet}:00 of it: the clock of its users may be {offset:+d} hours"
    )
