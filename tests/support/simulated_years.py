"""A year of three sites, night by night, through the guards' own functions; nothing is trained.

Sessions, item counts and metrics are drawn at random. The sizes of news follow two weeks of real
clicks (G1, October 2017): 80 to 86 % of the popularity changes from a week to the next day, a tenth
of the events are on new items, 4 to 12 % on the most frequent, Sundays have half of a weekday.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from dayahead.nightly.guards import metric_checks, new_window_checks
from dayahead.nightly.history import Entry, State
from support.simulated_windows import SimulatedFolder
from support.window_folders import day

N_DAYS = 365
FIRST = 8
"""Windows before the first night."""
WEEKEND = (2, 3)
"""Days since Thursday, 1 January 2026, modulo 7."""


@dataclass(frozen=True)
class Site:
    """What a year of a site is drawn from; noises are standard deviations of logarithms."""

    sessions: int
    """Of an ordinary weekday."""
    weekend: float
    """Sessions on Saturdays and Sundays, per session of a weekday."""
    noise: float
    """Of the sessions of a day; half of it is still there on the next."""
    n_items: int
    births: int
    """New items a day."""
    ages: tuple[float, ...]
    """Interest in an item by its age in days; the last value is that of all later days."""
    spread: float
    """Of the interest in items."""
    wander: float
    """Change of that a day."""
    peaks: dict[int, float] = field(default_factory=dict)
    """Factor of the sessions, by day of the year."""
    gifts: float = 1.0
    """Factor of the interest in a tenth of the items in December."""
    metric_noise: float = 0.07
    """Of the metric of a day, the same for the model and the baselines."""
    own_noise: float = 0.03
    """Of each of them by itself."""


def _holidays():
    """Valentine, Easter, Mother's Day, Black Friday (27 November) to Christmas."""
    peaks = {n: 1.1 + 0.08 * (n - 38) for n in range(38, 44)}
    peaks |= {92: 0.8, 94: 0.7, 95: 0.8} | {n: 1.3 for n in range(123, 129)}
    peaks |= {326: 1.2, 327: 1.3, 328: 1.5, 329: 1.7, 330: 2.8, 331: 2.1, 332: 2.0, 333: 2.3}
    peaks |= {n: 1.3 + 0.04 * (n - 334) for n in range(334, 352)}
    return peaks | {352: 1.9, 353: 1.7, 354: 1.5, 355: 1.3, 356: 1.0, 357: 0.6, 358: 0.4, 359: 0.9}


NEWS_AGES = (0.12, 1.0, 0.15, 0.05, 0.02, 0.01, 0.005, 0.002, 0.0002)
SITES = {
    "news": Site(
        sessions=20_000, weekend=0.6, noise=0.15, n_items=1000, births=80, ages=NEWS_AGES,
        spread=1.2, wander=0.0,
        peaks={n: 0.6 for n in (20, 46, 92, 110, 120, 154, 249, 284, 305, 318, 323, 358)}
        | {70: 1.5, 71: 1.3, 160: 1.7, 161: 1.3, 222: 1.5, 276: 1.8, 277: 1.5, 278: 1.2},
    ),
    "shop": Site(
        sessions=4000, weekend=0.25, noise=0.1, n_items=2000, births=4,
        ages=(0.5, 0.8, 1.0), spread=1.3, wander=0.05,
    ),
    "holiday shop": Site(
        sessions=8000, weekend=1.15, noise=0.08, n_items=2000, births=4,
        ages=(0.5, 0.8, 1.0), spread=1.3, wander=0.05,
        peaks=_holidays(), gifts=3.0,
    ),
}  # fmt: skip
EVENTS = 3
"""A session's events."""


@dataclass
class Year:
    """What the guards see of a site, day by day."""

    site: Site
    draw: np.random.Generator
    sessions: np.ndarray
    counts: np.ndarray
    own: np.ndarray
    """Metric of the model fitted up to the day before."""
    baselines: dict[str, np.ndarray]

    def until(self, n):
        """Return a copy of the first days alone."""
        days = (self.sessions, self.counts, self.own)
        baselines = {name: values[:n] for name, values in self.baselines.items()}
        return Year(self.site, self.draw, *(each[:n].copy() for each in days), baselines)


def simulated_year(site, seed):
    """Draw a healthy year."""
    draw = np.random.default_rng(seed)
    days = np.arange(N_DAYS)
    weekly = np.where(np.isin(days % 7, WEEKEND), site.weekend, 1.0)
    peaks = np.array([site.peaks.get(n, 1.0) for n in days])
    level = site.sessions * weekly * peaks * np.exp(_noise(draw, site.noise, 0.5))
    sessions = np.maximum(1, draw.poisson(level))
    counts = draw.poisson(_shares(site, draw) * (sessions * EVENTS)[:, None]).astype(np.int32)
    season = 1 + 0.06 * np.sin(2 * np.pi * (days / N_DAYS + draw.random()))
    common = 0.1 * season * np.exp(_noise(draw, site.metric_noise, 0.3))
    lead = 1.4 * np.exp(_noise(draw, 0.015, 0.98))

    def single():
        return np.exp(draw.normal(0, site.own_noise, N_DAYS))

    own = common * lead * single()
    baselines = {"popularity": common * 0.8 * single(), "transitions": common * single()}
    return Year(site, draw, sessions, counts, own, baselines)


def _noise(draw, spread, memory):
    """Draw a stationary autoregression of the first order."""
    steps = draw.normal(0, spread * np.sqrt(1 - memory**2), N_DAYS)
    values = [draw.normal(0, spread)]
    for step in steps[1:]:
        values.append(memory * values[-1] + step)
    return np.array(values)


def _shares(site, draw):
    """Draw each item's share of a day's events, [days, items]."""
    n = site.n_items + site.births * N_DAYS
    born = np.concatenate(
        [np.full(site.n_items, -len(site.ages)), np.repeat(np.arange(N_DAYS), site.births)]
    )
    ages = np.arange(N_DAYS)[:, None] - born[None]
    by_age = np.array(site.ages)[np.clip(ages, 0, len(site.ages) - 1)] * (ages >= 0)
    interest = draw.normal(0, site.spread, n)[None].repeat(N_DAYS, axis=0)
    if site.wander:
        interest = interest + draw.normal(0, site.wander, (N_DAYS, n)).cumsum(axis=0)
    december = np.clip((np.arange(N_DAYS) - 320) / 20, 0, 1) * (np.arange(N_DAYS) < 358)
    is_gift = draw.random(n) < 0.1
    gifts = 1 + (site.gifts - 1) * december[:, None] * is_gift[None]
    values = by_age * np.exp(interest) * gifts
    return values / values.sum(axis=1, keepdims=True)


@dataclass
class Nights:
    """Nights of a year, as `dayahead nightly` decides them."""

    year: Year
    config: object
    entries: list = field(default_factory=list)

    def run(self, first, last):
        """Decide on the days from `first` to before `last`; return the kind of each decision."""
        folder = SimulatedFolder(self.year.sessions, self.year.counts)
        start = len(self.entries)
        for number in range(first, last):
            folder.n = number + 1
            self.entries.append(self._decide(folder, folder.windows[-1]))
        return [entry.kind for entry in self.entries[start:]]

    def _decide(self, folder, window):
        refused_before = State(tuple(self.entries)).refused_windows
        checks, refused = new_window_checks(folder, [window], refused_before, self.config)
        details = {"windows": [window.name]}
        if refused:
            return self._entry("refused", window, checks, details | {"refused_windows": refused})
        measures = [w.position for w in folder.windows[1:] if w.name not in refused_before]
        own = self.year.own[measures].tolist()
        baselines = {name: rows[measures].tolist() for name, rows in self.year.baselines.items()}
        checks += metric_checks(own, baselines, self.config)
        kind = "published" if all(check.passed for check in checks) else "held"
        return self._entry(kind, window, checks, details)

    def _entry(self, kind, window, checks, details):
        model = window.name if kind == "published" else ""
        checks = [check.as_json() for check in checks]
        return Entry(
            kind=kind, why="", window=window.name, model=model, checks=checks, details=details
        )


def copy_until(nights, year, number):
    """Return the same nights up to before a day, in another year from there on."""
    entries = [entry for entry in nights.entries if entry.window < day(number)]
    return replace(nights, year=year, entries=entries)


def outage(year, start, share):
    """A share of the sessions arrives, two days long."""
    return _feed(year, slice(start, start + 2), share)


def missing(year, start, share):
    """A share of the sessions is missing, from then on."""
    return _feed(year, slice(start, None), 1 - share)


def doubled(year, start):
    """Every session arrives twice, from then on."""
    return _feed(year, slice(start, None), 2)


def _feed(year, days, factor):
    year.sessions[days] = np.maximum(1, year.sessions[days] * factor)
    counts = year.counts[days]
    year.counts[days] = year.draw.binomial(counts, factor) if factor < 1 else counts * factor
    return year


def missing_items(year, start, share):
    """A share of the items is missing, with their events."""
    is_missing = year.draw.random(year.counts.shape[1]) < share
    before = year.counts[start:].sum(axis=1)
    year.counts[start:, is_missing] = 0
    left = year.counts[start:].sum(axis=1) / np.maximum(1, before)
    year.sessions[start:] = np.maximum(1, year.sessions[start:] * left)
    return year


def renumbered(year, start):
    """Every item has another number."""
    year.counts = np.pad(year.counts, [(0, 0), (0, year.counts.shape[1])])
    year.counts[start:] = np.roll(year.counts[start:], year.counts.shape[1] // 2, axis=1)
    return year


def worse(year, start, loss):
    """Models fitted from then on are worse; those published before are not."""
    year.own[start:] *= 1 - loss
    return year


FAULTS = {
    "outage, 5 % arrives": (outage, 0.05),
    "outage, 20 % arrives": (outage, 0.2),
    "50 % of the sessions missing": (missing, 0.5),
    "30 % of the sessions missing": (missing, 0.3),
    "10 % of the sessions missing": (missing, 0.1),
    "50 % of the items missing": (missing_items, 0.5),
    "30 % of the items missing": (missing_items, 0.3),
    "doubled feed": (doubled,),
    "renumbered items": (renumbered,),
    "model 60 % worse": (worse, 0.6),
    "model 30 % worse": (worse, 0.3),
}
STARTS = (60, 95, 130, 171, 200, 241, 276, 310)
"""Days on which faults begin, by seed; each weekday is among them."""


def nights_until_held(nights, fault, start, most):
    """Return the nights from the fault's first until one is refused or held; None for none."""
    break_year, *sizes = FAULTS[fault]
    broken = break_year(nights.year.until(start + most), start, *sizes)
    kinds = copy_until(nights, broken, start).run(start, start + most)
    return next((n for n, kind in enumerate(kinds, start=1) if kind != "published"), None)
