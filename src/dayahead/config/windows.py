"""Settings of windows: sections `window` and `preprocess` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, TimeZone

CALENDAR_LENGTHS = {
    "day": (1, 7),
    "hour": (1, 2, 3, 4, 6, 8, 12, 24),
    "minute": (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60),
}
"""Lengths of calendar windows by unit: they divide the week, the day (UTC) and the hour."""
_PERIODS = {"day": "week", "hour": "day", "minute": "hour"}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowConfig:
    """Length and origin of a window, and which windows take part."""

    unit: Literal["day", "hour", "minute"]
    """Unit of a window's length."""
    length: Annotated[int, Field(ge=1, le=1440)]
    """Units per window: 15 with unit minute is a quarter of an hour. With origin calendar it
    divides the hour (minute) or the day (hour), or is 7: weeks from Monday (day)."""
    origin: Literal["calendar", "first_session"]
    """Where windows start: at midnight, the full hour and every length from there; or every length
    since the first session."""
    timezone: TimeZone
    """IANA time zone of day windows and time features. Hours and minutes are always cut and named
    in UTC."""
    first: str | None
    """Name of the first window fitted on (2019-10-01, 2019-10-01T13 or 2019-10-01T1304); null: the
    first."""
    last: str | None
    """Name of the last window evaluated; null: the last."""
    min_sessions: Count
    """Windows with fewer sessions are dropped and listed."""
    overrun: Literal["cut", "keep"]
    """Events at or after the window's end plus grace: dropped and counted, or kept (the paper)."""
    grace: Annotated[int, Field(ge=0, le=5_256_000)]
    """Minutes after a window's end in which its sessions may still go on. With overrun: cut these
    clicks, of the time of the next window, are evaluated but not trained on."""

    def __post_init__(self) -> None:
        """Check that calendar windows begin at the same times in every period."""
        lengths, period = CALENDAR_LENGTHS[self.unit], _PERIODS[self.unit]
        if self.origin == "calendar" and self.length not in lengths:
            raise ValueError(
                f"length ({self.length} {self.unit}s): windows of the calendar begin at the same "
                f"times in every {period}, so expected one of {', '.join(map(str, lengths))}; take "
                f"one of these, or set origin to first_session"
            )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PreprocessConfig:
    """How the event log becomes window files."""

    fit_windows: Count
    """Initial windows whose train sessions features are fitted on; they are never evaluated."""
    rebuild: bool
    """Whether rows that arrive for windows already written rewrite them; false: an error."""
