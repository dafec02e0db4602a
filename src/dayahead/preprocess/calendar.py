"""Windows on the time axis: edges and names, and which of them are closed.

All instants are microseconds since 1970, UTC.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dayahead.config.params import WindowConfig
from dayahead.core.errors import DataError
from dayahead.features.operators import local_time

MINUTE = 60_000_000
MAX_WINDOWS = 100_000
"""Eleven years of hours; a single stray time would otherwise make millions of windows."""
_LENGTH = {"hour": 60 * MINUTE, "day": 24 * 60 * MINUTE}


@dataclass(frozen=True)
class Calendar:
    """Consecutive windows."""

    names: tuple[str, ...]
    """2019-10-01, or 2019-10-01T13 where the unit is the hour."""
    edges: NDArray[np.int64]
    """Shape [n + 1]: window i is [edges[i], edges[i + 1])."""
    grace: int
    """Microseconds after a window's end in which its sessions may still go on."""

    def positions(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of the windows in which sessions with these starts belong."""
        return np.searchsorted(self.edges, starts, side="right") - 1

    @property
    def closes(self) -> NDArray[np.int64]:
        """When each window takes no more events: its end plus the grace."""
        return self.edges[1:] + self.grace


@dataclass(frozen=True)
class Progress:
    """How many of a calendar's windows are closed, before and after this run."""

    calendar: Calendar
    n_written: int
    """Windows, from the first on, that earlier runs wrote or dropped for good."""
    n_closed: int
    """Windows that take no more events after this run."""

    @property
    def closed_until(self) -> int:
        """End of the last window that is closed after this run."""
        return int(self.calendar.edges[self.n_closed])


def calendar_over(window: WindowConfig, first: int, last: int) -> Calendar:
    """Return the windows that cover session starts from `first` to `last`.

    Calendar days begin at midnight in window.timezone. Hours, and blocks since the first session,
    have one length and are named in UTC: a zone's 23-hour day would give two of them one name.

    Raises:
        ConfigError: window.timezone is not known.
        DataError: there would be more than MAX_WINDOWS.
    """
    if (n_windows := (last - first) // _LENGTH[window.unit] + 1) > MAX_WINDOWS:
        begin, end = (np.datetime64(edge, "us").astype("datetime64[s]") for edge in (first, last))
        raise DataError(
            f"data/raw: sessions start from {begin} to {end} (UTC), {n_windows:,} windows of one "
            f"{window.unit}; expected at most {MAX_WINDOWS:,}. Correct the stray times in the "
            f"source, or set window.unit=day"
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
