"""A year of clicks by the minute, of sites whose nights are quiet; nothing is trained.

Drawn are the sessions of each day, how busy its hours are, and when each session clicks.
"""

from dataclasses import dataclass, field

import numpy as np

from dayahead.nightly.silence import N_PARTS
from support.simulated_windows import SimulatedFolder, refused_windows

N_DAYS = 365
FIRST = 8
"""Windows before the first night."""
WEEKEND = (2, 3)
"""Days since Thursday, 1 January 2026, modulo 7."""
CLICKS = 3
"""Clicks of a session, some minutes apart."""


@dataclass(frozen=True)
class Hours:
    """What the clicks of a site are drawn from."""

    sessions: int
    """Of an ordinary weekday."""
    weekend: float
    """Sessions on Saturdays and Sundays, per session of a weekday."""
    busy: tuple[float, ...]
    """How busy each hour of a weekday is."""
    busy_weekend: tuple[float, ...]
    noise: float = 0.3
    """Deviation of the logarithm of an hour's clicks; half of it is still there in the next."""
    peaks: dict[int, float] = field(default_factory=dict)
    """Factor of the sessions, by day of the year."""
    early: tuple[int, ...] = ()
    """Days on which a tenth of the usual clicks come after 15 h, such as Christmas Eve."""
    sundays: tuple[int, ...] = ()
    """Weekdays that are as Sundays are."""
    stories: int = 0
    """Days in a year of which an hour has eight times its clicks."""


def _holidays():
    peaks = {92: 0.8, 94: 0.7, 95: 0.8, 330: 2.8, 331: 2.1, 332: 2.0, 333: 2.3}
    return peaks | {n: 1.6 for n in range(340, 353)} | {357: 0.6, 358: 0.4, 359: 0.5}


OFFICE = (0,) * 6 + (1, 5, 9, 10, 10, 10, 9, 10, 10, 10, 9, 6, 3, 2, 2, 1, 0.5, 0)
"""A shop for craftsmen: nearly no click at night."""
EVENING = (2, 0.5, 0.1, 0.05, 0.05, 0.2, 1, 2, 3, 4, 5, 5, 6, 6, 5, 5, 6, 7, 8, 10, 12, 12, 9, 5)
LATE = (3, 1, 0.3, 0.1, 0.05, 0.05, 0.2, 0.6, 2, 4, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 10, 10, 8, 5)
NEWS = (2, 1, 0.7, 0.6, 0.8, 2, 6, 9, 9, 8, 8, 8, 9, 8, 7, 7, 7, 8, 8, 8, 8, 8, 7, 4)
NEWS_LATE = (3, 2, 1, 0.7, 0.6, 0.8, 2, 4, 7, 9, 9, 9, 8, 7, 7, 7, 7, 8, 8, 8, 8, 8, 7, 4)
SITES = {
    "news": Hours(20_000, 0.6, NEWS, NEWS_LATE, stories=12),
    "shop": Hours(4000, 0.25, OFFICE, LATE, sundays=(0, 5, 92, 95, 120, 133, 144, 275, 358, 359)),
    "holiday shop": Hours(8000, 1.15, EVENING, LATE, peaks=_holidays(), early=(357, 364)),
    "small shop": Hours(100, 0.7, EVENING, LATE, peaks=_holidays(), early=(357, 364)),
}


@dataclass
class Clicks:
    """Sessions of each day, and its clicks by the minute, [days, N_PARTS]."""

    sessions: np.ndarray
    minutes: np.ndarray

    def days(self, first, last):
        """Return some of the days alone."""
        return Clicks(self.sessions[first:last], self.minutes[first:last])

    def refused(self, config, first=FIRST):
        """Decide on the days from `first` on; return those that are refused."""
        counts = np.full((len(self.sessions), 3), 100)
        folder = SimulatedFolder(self.sessions, counts, minutes=self.minutes)
        return refused_windows(folder, config, first)


def simulated_clicks(site, seed, n_days=N_DAYS):
    """Draw a healthy year."""
    draw = np.random.default_rng(seed)
    stories = set(draw.choice(N_DAYS, site.stories, replace=False).tolist())
    sessions, minutes = [], []
    for day in range(n_days):
        is_weekend = day % 7 in WEEKEND or day in site.sundays
        level = site.sessions * (site.weekend if is_weekend else 1) * site.peaks.get(day, 1.0)
        busy = np.array(site.busy_weekend if is_weekend else site.busy, float)
        busy *= np.exp(_noise(draw, site.noise, 24))
        if day in site.early:
            busy[15:] *= 0.1
        if day in stories:
            busy[draw.integers(24)] *= 8
        by_minute = np.repeat(busy / busy.sum() / 60, 60)
        starts = draw.poisson(level * np.exp(draw.normal(0, 0.1)) * by_minute)
        sessions.append(max(1, starts.sum()))
        minutes.append(_clicks(draw, starts))
    return Clicks(np.array(sessions), np.array(minutes))


def _clicks(draw, starts):
    """Spread the clicks of sessions over the minutes from their starts on."""
    later = draw.exponential(3, (starts.sum(), CLICKS)).cumsum(axis=1)
    later -= later[:, :1]
    at = np.repeat(np.arange(N_PARTS), starts)[:, None] + later.astype(int)
    return np.bincount(at[at < N_PARTS], minlength=N_PARTS)


def _noise(draw, spread, n):
    values = [draw.normal(0, spread)]
    for step in draw.normal(0, spread * np.sqrt(0.75), n - 1):
        values.append(0.5 * values[-1] + step)
    return np.array(values)


def cut(clicks, share, day=-1):
    """A day's file ends when this share of its clicks have come."""
    end = np.searchsorted(clicks.minutes[day].cumsum(), share * clicks.minutes[day].sum())
    return _without(clicks, day, slice(end, None))


def late(clicks, share, day=-1):
    """A day's file begins when all but this share of its clicks have come."""
    end = np.searchsorted(clicks.minutes[day].cumsum(), (1 - share) * clicks.minutes[day].sum())
    return _without(clicks, day, slice(None, end))


def hole(clicks, first, last, day=-1):
    """A day's file has no click between these hours."""
    return _without(clicks, day, slice(first * 60, last * 60))


def _without(clicks, day, part):
    sessions, minutes = clicks.sessions.copy(), clicks.minutes.copy()
    before = minutes[day].sum()
    minutes[day, part] = 0
    sessions[day] = max(1, sessions[day] * minutes[day].sum() / before)
    return Clicks(sessions, minutes)


FAULTS = {
    "cut after 25 % of the clicks": (cut, 0.25),
    "cut after 50 %": (cut, 0.5),
    "cut after 75 %": (cut, 0.75),
    "cut after 90 %": (cut, 0.9),
    "the first 25 % missing": (late, 0.75),
    "no click from 12 to 15 h": (hole, 12, 15),
}


def share_found(clicks, fault, config, step=11):
    """Return the share of every eleventh day on which a fault is refused."""
    break_day, *sizes = FAULTS[fault]
    before, found = 35, []
    for day in range(before, N_DAYS, step):
        broken = break_day(clicks.days(day - before, day + 1), *sizes)
        found.append(bool(broken.refused(config, first=before)))
    return np.mean(found)
