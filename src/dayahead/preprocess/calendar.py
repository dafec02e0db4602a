"""Where windows begin and end, and what they are called."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dayahead.config.params import WindowConfig
from dayahead.core.errors import DataError
from dayahead.features.operators import local_time

MINUTE = 60_000_000
"""Microseconds; all instants here are microseconds since 1970, UTC."""
MOST = 100_000
"""Windows of a log: eleven years of hours. A stray time would otherwise make millions of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LENGTH = {"hour": 60 * MINUTE, "day": 24 * 60 * MINUTE}


def instant(microseconds: int) -> datetime:
    """Turn microseconds since 1970 into a time (UTC)."""
    return _EPOCH + microseconds * _MICROSECOND


def microseconds_of(instant: datetime) -> int:
    """Turn a time of any zone into microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


@dataclass(frozen=True)
class Calendar:
    """Windows without a hole between them, in order of time."""

    names: tuple[str, ...]
    """2019-10-01, or 2019-10-01T13 where the unit is the hour."""
    edges: NDArray[np.int64]
    """Shape [n + 1], microseconds, UTC: window i is [edges[i], edges[i + 1])."""
    grace: int
    """Microseconds after a window's end in which its sessions may still go on."""

    def __len__(self) -> int:
        """Count the windows."""
        return len(self.names)

    def positions(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place sessions that start at these instants into windows."""
        return np.searchsorted(self.edges, starts, side="right") - 1

    @property
    def closes(self) -> NDArray[np.int64]:
        """When each window takes no more events: its end plus the grace."""
        return self.edges[1:] + self.grace


def calendar_over(window: WindowConfig, first: int, last: int) -> Calendar:
    """Build the windows that cover the session starts from `first` to `last` (microseconds, UTC).

    Calendar days begin at midnight in window.timezone. Hours, and blocks since the first session,
    have one length and are named in UTC: a zone's 23-hour day would give two of them one name.

    Raises:
        ConfigError: window.timezone is not known.
        DataError: there would be more than MOST.
    """
    if (n_windows := (last - first) // _LENGTH[window.unit] + 1) > MOST:
        begin, end = (np.datetime64(edge, "us").astype("datetime64[s]") for edge in (first, last))
        raise DataError(
            f"data/raw: sessions start from {begin} to {end} (UTC), {n_windows:,} windows of one "
            f"{window.unit}; expected at most {MOST:,}. Correct the stray times in the source, or "
            f"set window.unit=day"
        )
    if window.unit == "day" and window.origin == "calendar":
        names, edges = _local_days(window.timezone, first, last)
    else:
        names, edges = _blocks(window, first, last)
    return Calendar(names, edges, window.grace * MINUTE)


def _blocks(
    window: WindowConfig, first: int, last: int
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    length = _LENGTH[window.unit]
    begin = first if window.origin == "first_session" else first - first % length
    edges = begin + length * np.arange((last - begin) // length + 2)
    precision = "datetime64[h]" if window.unit == "hour" else "datetime64[D]"
    starts = edges[:-1].astype("datetime64[us]").astype(precision)
    return tuple(starts.astype(str).tolist()), edges


def _local_days(timezone: str, first: int, last: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    local = local_time(np.array([first, last]), timezone).astype("datetime64[us]")
    dates = np.arange(local[0].astype("datetime64[D]"), local[1].astype("datetime64[D]") + 2)
    # Where summer time begins at midnight (Brazil) the day begins at the first instant there is.
    midnights = pd.DatetimeIndex(dates).tz_localize(
        timezone, nonexistent="shift_forward", ambiguous=np.ones(len(dates), dtype=bool)
    )
    return tuple(dates[:-1].astype(str).tolist()), midnights.asi8 // 1000
