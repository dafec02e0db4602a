"""Windows on the time axis: edges and names, and which of them are closed.

All instants are microseconds since 1970, UTC.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dayahead.config.windows import WindowConfig
from dayahead.core.columns import UNITS
from dayahead.core.errors import DataError
from dayahead.features.operators import local_time

MINUTE = UNITS["minute"]
MAX_WINDOWS = 100_000
"""Eleven years of hours, 69 days of minutes; a stray time would otherwise make millions of them."""
_PRECISION = {"day": "datetime64[D]", "hour": "datetime64[h]", "minute": "datetime64[m]"}


@dataclass(frozen=True)
class Calendar:
    """Consecutive windows."""

    names: tuple[str, ...]
    """Name of each window, by its start: 2019-10-01; for hours 2019-10-01T13, for minutes
    2019-10-01T1304 (ISO 8601 without a colon, because names become file names)."""
    edges: NDArray[np.int64]
    """Shape [n + 1]: window i is [edges[i], edges[i + 1])."""
    grace: int
    """Microseconds after a window's end in which its sessions may continue."""

    def positions(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of the windows to which sessions with these starts belong."""
        return np.searchsorted(self.edges, starts, side="right") - 1

    @property
    def closes(self) -> NDArray[np.int64]:
        """Time from which each window takes no more events: its end plus the grace."""
        return self.edges[1:] + self.grace


@dataclass(frozen=True)
class Progress:
    """Number of a calendar's windows that are closed, before and after this run."""

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

    Calendar days begin at midnight in window.timezone, and weeks with their Monday. Hours, minutes
    and blocks since the first session have one length and are named in UTC: a zone's 23-hour day
    would give two of them one name.

    Raises:
        ConfigError: window.timezone is not known.
        DataError: there would be more than MAX_WINDOWS.
    """
    length = UNITS[window.unit] * window.length
    if (n_windows := (last - first) // length + 1) > MAX_WINDOWS:
        begin, end = (np.datetime64(edge, "us").astype("datetime64[s]") for edge in (first, last))
        raise DataError(
            f"data/raw: sessions start from {begin} to {end} (UTC), {n_windows:,} windows "
            f"(window.length={window.length}, window.unit={window.unit}); expected at most "
            f"{MAX_WINDOWS:,}. Correct the stray times in the source, or set longer windows"
        )
    if window.unit == "day" and window.origin == "calendar":
        names, edges = _local_days(window, first, last)
    else:
        begin = first if window.origin == "first_session" else first - first % length
        edges = begin + length * np.arange((last - begin) // length + 2)
        names = _names(edges[:-1].astype("datetime64[us]").astype(_PRECISION[window.unit]))
    return Calendar(names, edges, window.grace * MINUTE)


def _names(starts: NDArray[np.datetime64]) -> tuple[str, ...]:
    return tuple(name.replace(":", "") for name in starts.astype(str).tolist())


def _local_days(
    window: WindowConfig, first: int, last: int
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return days, or weeks from Monday."""
    local = local_time(np.array([first, last]), window.timezone).astype("datetime64[us]")
    begin, end = local.astype("datetime64[D]")
    begin -= (begin.astype(int) + 3) % window.length  # 1970-01-01 was a Thursday
    dates = np.arange(begin, end + 1 + window.length, window.length)
    # Where summer time begins at midnight (Brazil), the day starts at its first existing instant;
    # where midnight occurs twice, at the first of the two.
    midnights = pd.DatetimeIndex(dates).tz_localize(
        window.timezone, nonexistent="shift_forward", ambiguous=np.ones(len(dates), dtype=bool)
    )
    return _names(dates[:-1]), midnights.as_unit("us").asi8
