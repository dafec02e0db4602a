"""Section `time` of datasets/<name>.yaml: how times are written, and which are plausible."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Duration, TimeZone
from dayahead.core.durations import microseconds_of

TimeUnit = Literal["s", "ms", "us", "ns", "excel", "text"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
PLAUSIBLE = (datetime(1990, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
"""Default of `time.between`, the second excluded: fixed, so that a conversion does not depend on
the day on which it runs. Events later than tomorrow are in the event table, but strays there."""

ZONE_PATTERN = (
    r"(?P<z>(?:Z|z|(?:UTC|GMT|utc|gmt))|(?:(?:UTC|GMT) ?)?[+-]\d\d(?::?\d\d(?::?\d\d)?)?)"
    # After an offset Go repeats the zone's name, Java has its IANA name, JavaScript a comment.
    r"(?: [A-Z]{2,5}| [+-]\d\d(?:\d\d)?| ?\(.*\)|\[[\w/+-]+\]| m=[+-][\d.]+)*"
)
DIRECTIVES: Mapping[str, str] = {
    "Y": r"(?P<y>\d{4})",
    "y": r"(?P<yy>\d\d)",
    "m": r"(?P<mo>\d\d?)",
    "b": r"(?P<mon>[A-Za-z]+)\.?",
    "B": r"(?P<mon>[A-Za-z]+)",
    "d": r"(?P<d>\d\d?)",
    "e": r" ?(?P<d>\d\d?)",
    "H": r"(?P<h>\d\d?)",
    "I": r"(?P<h12>\d\d?)",
    "M": r"(?P<mi>\d\d?)",
    "S": r"(?P<s>\d\d?)",
    "f": r"(?P<f>\d{1,9})",
    "p": r"(?P<ap>[AaPp]\.?[Mm]\.?)",
    "z": ZONE_PATTERN,
    "Z": r"(?P<z>Z|UTC|GMT)",
    "a": r"[A-Za-z]+\.?",
    "A": r"[A-Za-z]+",
    "%": "%",
}
"""Regular expression of each directive of `time.format`; its group is a field of a time."""
_SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%h": "%b"}


def format_pattern(form: str) -> str:
    """Return the regular expression (RE2) of a format of strptime, without its ends.

    Names of months and days are the English ones, in either case and length.

    Raises:
        ValueError: a directive is not known, or the fields do not make a time.
    """
    for short, long in _SHORT.items():
        form = form.replace(short, long)
    pattern, names = "", []
    for directive, blank, other in re.findall(r"%(.?)|(\s+)|([^%\s])", form, re.DOTALL):
        if blank or other:
            pattern += r"\s+" if blank else re.escape(other)
            continue
        if directive not in DIRECTIVES:
            known = " ".join(f"%{name}" for name in DIRECTIVES)
            raise ValueError(f"time.format: %{directive} is not known in {form!r}; known: {known}")
        pattern += DIRECTIVES[directive]
        names += re.findall(r"\?P<(\w+)>", DIRECTIVES[directive])
    _check_fields(form, names)
    return pattern


def _check_fields(form: str, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"time.format: {form!r} has the field {twice[0]} twice")
    for options, missing in (
        ({"y", "yy"}, "the year (%Y, or %y of two digits)"),
        ({"mo", "mon"}, "the month (%m, or %b by name)"),
        ({"d"}, "the day (%d)"),
    ):
        if len(options & set(names)) != 1:
            raise ValueError(f"time.format: {form!r} needs {missing}, once")
    if ("h12" in names) != ("ap" in names):
        raise ValueError(f"time.format: {form!r}: %I and %p (AM, PM) belong together")
    if {"h", "h12"} <= set(names):
        raise ValueError(f"time.format: {form!r} has both %H and %I")


def microseconds(moment: date | datetime, *, is_end: bool = False) -> int:
    """Return a moment in microseconds since 1970; a date is its midnight (or, as an end, the next).

    Without a zone it is in UTC.
    """
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        moment += timedelta(days=is_end)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TimeConfig:
    """How the event time is written: in one column, or as a date and an offset from midnight."""

    column: str
    unit: TimeUnit = "text"
    """Unix time in this unit; excel: days since 1899-12-30, to the millisecond; or text: ISO 8601
    (`2019-10-01 00:00:00 UTC` too) and every other way to write a time in which the order of day
    and month is clear."""
    format: str | tuple[str, ...] | None = None
    """How text is written, in the directives of strptime (`%d.%m.%Y %H:%M:%S`), or a list of
    formats, of which the first that fits is taken. Null: see `unit`."""
    zone: TimeZone = "UTC"
    """IANA time zone of text without a UTC offset."""
    offset: str | None = None
    """A column added to `column` (a date), in `offset_unit`."""
    offset_unit: Literal["s", "ms", "us"] = "ms"
    between: tuple[datetime | date, datetime | date] | None = None
    """From (included) and to (excluded; a date: to its end), UTC. Events outside are dropped and
    counted (`quality.outside`). Null: from 1990 on, and events later than tomorrow are strays."""
    complete_until: datetime | Literal["yesterday"] | None = None
    """Watermark: the log is complete up to here. yesterday: up to the last midnight in `zone` when
    `download` runs, and of days of which no event has come yet, none. Null: up to its last event
    that is no stray, and `settle`. It may be an environment variable, `${oc.env:NAME}`."""
    settle: Duration | None = None
    """Time after the last event up to which the log is complete too (`30min`), so that a window in
    whose last minutes nothing happens can close. Rows that come later are late."""

    def __post_init__(self) -> None:
        """Check formats, that `between` is from low to high, and that one watermark is set."""
        if self.formats and self.unit != "text":
            raise ValueError(f"time.format is for text, but time.unit is {self.unit}")
        for form in self.formats:
            format_pattern(form)
        low, high = self.limits
        widest = microseconds(_EPOCH), microseconds(PLAUSIBLE[1])
        if not widest[0] <= low < high <= widest[1]:
            raise ValueError(
                "time.between: expected two times from 1970 to 2200, the earlier one first"
            )
        if self.complete_until is not None and self.settle is not None:
            raise ValueError(
                "time.settle counts from the last event, and time.complete_until says up to when "
                "the log is complete: leave one of them out"
            )

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of text; none: those that need no setting."""
        return (self.format,) if isinstance(self.format, str) else self.format or ()

    @property
    def limits(self) -> tuple[int, int]:
        """First plausible time, and the end of the plausible ones, microseconds since 1970."""
        first, end = self.between or PLAUSIBLE
        return microseconds(first), microseconds(end, is_end=True)

    def log_end(self, last_event: int, now: datetime) -> datetime:
        """Return up to when a log is complete.

        Args:
            last_event: time of its last event that is no stray, microseconds since 1970.
            now: the present, which `complete_until: yesterday` depends on.
        """
        if isinstance(self.complete_until, datetime):
            return as_utc(self.complete_until)
        last = _EPOCH + last_event * _MICROSECOND
        if self.complete_until is None:
            return last + (microseconds_of(self.settle) if self.settle else 0) * _MICROSECOND
        zone = ZoneInfo(self.zone)
        end_of_day = _midnight(last.astimezone(zone).date() + timedelta(days=1), zone)
        return min(end_of_day, _midnight(now.astimezone(zone).date(), zone))


def as_utc(moment: datetime) -> datetime:
    """Return a moment in UTC; without a zone it is in UTC already."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
