"""Synthetic click log, generated from a seed, with the structure of real ones.

Items are released, have Zipf-distributed popularity and fade; they belong to topics, and each has
a few preferred successors in its topic. A session stays in a topic, has a taste (a price tier) that
only several of its items reveal, and follows successors that suit the taste: transition counts can
learn the successors, only a model of the whole session can learn the taste as well.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dayahead.core.columns import DAY, TIMESTAMP
from dayahead.core.ragged import row_of_each, step_of_each
from dayahead.dataset.source import SyntheticConfig
from dayahead.dataset.time import as_utc, microseconds

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SLOTS_PER_DAY = 8
"""Number of times per day that popularity is updated."""
MAX_LENGTH = 60
N_TIERS = 3
_SUCCESSOR_SHARES = 1.0 / np.arange(1, 13)
_NEIGHBOURHOOD = 12
"""Successors are at most this many positions away in the topic's order of birth."""
_FOLLOWS, _SWITCHES = 0.5, 0.2
"""Shares of clicks on a successor, and on any item; the rest are on popular items of the topic."""
_FORGOTTEN = 1e-6
"""If the weights of an item's successors sum to less, none is followed."""
_TASTE = 16.0
"""Factor on the weight of successors in the session's tier."""
_AT_HOME, _HABITUAL, _KNOWN = 0.6, 0.7, 0.85
"""Shares of sessions that start in a favourite topic, are in the user's usual tier, logged in."""
_WEEKDAYS = np.array([1.05, 1.08, 1.06, 1.04, 1.0, 0.86, 0.91])


@dataclass(frozen=True)
class Items:
    """The catalogue, ordered by (topic, birth)."""

    ids: Ints
    birth: Floats
    """Days since the log's start; negative: before it."""
    fade: Floats
    """Days after which the interest has fallen to 1/e."""
    strength: Floats
    tier: Ints
    first: Ints
    """[n_topics + 1] position of each topic's first item, and the number of items."""
    topic: Ints
    successors: Ints
    """[n_items, n_successors] positions."""
    price: Floats

    @property
    def categories(self) -> pa.Array:
        """Name of each item's category; as in real catalogues, some items have none."""
        names = np.array([f"category-{topic % 20:02d}" for topic in range(len(self.first) - 1)])
        return pa.array(names[self.topic], pa.string(), mask=self.ids % 50 == 0)


def log_end(config: SyntheticConfig) -> datetime:
    """Return the midnight after the last day, up to which the log is complete."""
    return as_utc(config.start) + timedelta(days=config.days)


@dataclass(frozen=True)
class Log:
    """A generated log."""

    clicks: pa.Table
    """session_id string, user_id string (null: not logged in), item_id int64, event_time
    timestamp[us, UTC], category string (nullable), price float64."""
    suits: npt.NDArray[np.bool_]
    """Which clicks are on an item of the price tier that the session prefers."""


def generate_log(config: SyntheticConfig) -> Log:
    """Generate the log, in order of time; the same settings always give the same rows."""
    rng = np.random.default_rng(config.seed)
    items = draw_items(rng, config)
    starts = _session_starts(rng, config)
    user, home, taste = _visitors(rng, config, items, len(starts))
    lengths = np.minimum(1 + rng.lognormal(1.1, 0.85, len(starts)).astype(np.int64), MAX_LENGTH)
    session, step = row_of_each(lengths), step_of_each(lengths)
    times = _click_times(rng, starts, session, step)
    chosen = _walk(rng, items, config, times, (session, step), (home, taste))
    inside = np.flatnonzero(times < config.days * DAY)  # a log ends in mid-session
    order = inside[np.argsort(times[inside], kind="stable")]
    session, chosen = session[order], chosen[order]
    return Log(
        _table(config, items, times[order], session, user[session], chosen),
        suits=items.tier[chosen] == taste[session],
    )


def draw_items(rng: np.random.Generator, config: SyntheticConfig) -> Items:
    """Draw the catalogue."""
    n, n_topics = config.n_items, config.n_topics
    shares = _zipf(n_topics, 0.6)
    topic = np.concatenate([np.arange(n_topics), rng.choice(n_topics, n - n_topics, p=shares)])
    birth = rng.uniform(-config.days, config.days, n)
    birth[:n_topics] = -config.days  # every topic has an item from the start
    order = np.lexsort((birth, topic))
    topic, birth = topic[order], birth[order]
    first = np.searchsorted(topic, np.arange(n_topics + 1))
    tier = rng.integers(0, N_TIERS, n)
    category_level = rng.normal(3.0, 0.5, n_topics)[topic]
    hops = rng.integers(1, _NEIGHBOURHOOD + 1, (n, len(_SUCCESSOR_SHARES)))
    hops *= rng.choice([-1, 1], hops.shape)
    low, size = first[topic][:, None], np.diff(first)[topic][:, None]
    return Items(
        ids=100_000 + rng.permutation(n),
        birth=birth,
        fade=rng.lognormal(np.log(3.0), 0.6, n),
        strength=_zipf(n, 0.9)[rng.permutation(n)],
        tier=tier,
        first=first,
        topic=topic,
        successors=low + (np.arange(n)[:, None] - low + hops) % size,
        price=np.round(np.exp(category_level + 0.7 * (tier - 1) + rng.normal(0, 0.15, n)), 2),
    )


def _zipf(n: int, exponent: float) -> Floats:
    weights = np.arange(1, n + 1) ** -exponent
    return np.asarray(weights / weights.sum())


def _session_starts(rng: np.random.Generator, config: SyntheticConfig) -> Ints:
    """Return microseconds since the log's start, ascending; evenings and workdays are busier."""
    weekdays = (as_utc(config.start).weekday() + np.arange(config.days)) % 7
    counts = rng.poisson(config.sessions_per_day * _WEEKDAYS[weekdays])
    hours = np.arange(24)
    rhythm = 1.1 + np.sin((hours - 13) * np.pi / 12) + 0.3 * np.sin((hours - 8) * np.pi / 6)
    rhythm = np.maximum(rhythm, 0.1)
    n = int(counts.sum())
    hour = rng.choice(24, n, p=rhythm / rhythm.sum()) + rng.random(n)
    day = np.repeat(np.arange(config.days), counts)
    return np.sort((day * DAY + hour / 24 * DAY).astype(np.int64))


def _visitors(
    rng: np.random.Generator, config: SyntheticConfig, items: Items, n: int
) -> tuple[Ints, Ints, Ints]:
    """Return the user (-1: none), home topic (-1: none) and taste of each session."""
    n_users = max(n // 4, 1)
    user = rng.choice(n_users, n, p=_zipf(n_users, 0.5))
    sizes = np.diff(items.first)
    favourites = rng.choice(config.n_topics, (n_users, 2), p=sizes / sizes.sum())
    home = favourites[user, rng.integers(0, 2, n)]
    home[rng.random(n) >= _AT_HOME] = -1
    habit = rng.integers(0, N_TIERS, n_users)[user]
    taste = np.where(rng.random(n) < _HABITUAL, habit, rng.integers(0, N_TIERS, n))
    return np.where(rng.random(n) < _KNOWN, user, -1), home, taste


def _click_times(rng: np.random.Generator, starts: Ints, session: Ints, step: Ints) -> Ints:
    gaps = np.where(step == 0, 0, rng.lognormal(np.log(45.0), 1.0, len(step)) * 1000 + 1)
    since = np.cumsum(gaps.astype(np.int64))
    since -= since[step == 0][session]
    return np.asarray((starts[session] // 1000 + since) * 1000)  # whole milliseconds, as in logs


class _Popularity:
    """Samples items from a range of positions, by their weight in a time slot."""

    def __init__(self, items: Items, config: SyntheticConfig) -> None:
        now = np.arange(config.days * SLOTS_PER_DAY)[:, None] / SLOTS_PER_DAY
        interest = np.maximum(np.exp(-(now - items.birth) / items.fade), 1e-4)
        weights = np.where(items.birth <= now, items.strength * interest, 0.0)
        self._n_items = len(items.birth)
        self._cumulative = np.concatenate([[0.0], np.cumsum(weights)])

    def sample(self, rng: np.random.Generator, slot: Ints, low: Ints, high: Ints) -> Ints:
        base = slot * self._n_items
        below, above = self._cumulative[base + low], self._cumulative[base + high]
        point = below + rng.random(len(slot)) * (above - below)
        found = np.searchsorted(self._cumulative, point, side="right") - 1 - base
        return np.asarray(np.clip(found, low, high - 1))


def _walk(
    rng: np.random.Generator,
    items: Items,
    config: SyntheticConfig,
    times: Ints,
    click: tuple[Ints, Ints],
    visitor: tuple[Ints, Ints],
) -> Ints:
    """Choose the item of every click, all sessions together, one step at a time.

    `click` is the session and step of each click, `visitor` home topic and taste of each session.
    """
    (session, step), (home, taste) = click, visitor
    popularity = _Popularity(items, config)
    slots = np.minimum(times * SLOTS_PER_DAY // DAY, config.days * SLOTS_PER_DAY - 1)
    chosen = np.zeros(len(times), np.int64)
    anywhere = len(items.birth)
    for k in range(MAX_LENGTH):
        clicks = np.flatnonzero(step == k)
        topic = home[session[clicks]] if k == 0 else items.topic[chosen[clicks - 1]]
        roams = (topic < 0) | ((rng.random(len(clicks)) < _SWITCHES) & (k > 0))
        low = np.where(roams, 0, items.first[topic])
        high = np.where(roams, anywhere, items.first[topic + 1])
        chosen[clicks] = popularity.sample(rng, slots[clicks], low, high)
        if k > 0:
            follows = clicks[~roams & (rng.random(len(clicks)) < _FOLLOWS / (1 - _SWITCHES))]
            day = times[follows] / DAY
            after = _successor(rng, items, chosen[follows - 1], taste[session[follows]], day)
            chosen[follows] = np.where(after < 0, chosen[follows], after)
    return chosen


def _successor(
    rng: np.random.Generator, items: Items, current: Ints, taste: Ints, day: Floats
) -> Ints:
    """Return one of the current item's released successors, by taste; -1 if none is left."""
    options = items.successors[current]
    age = day[:, None] - items.birth[options]
    weights = _SUCCESSOR_SHARES * np.where(age >= 0, np.exp(-age / items.fade[options]), 0.0)
    weights *= np.where(items.tier[options] == taste[:, None], _TASTE, 1.0)
    cumulative = np.cumsum(weights, axis=1)
    point = rng.random(len(current))[:, None] * cumulative[:, -1:]
    index = np.minimum((cumulative <= point).sum(axis=1), options.shape[1] - 1)
    return np.where(cumulative[:, -1] > _FORGOTTEN, options[np.arange(len(current)), index], -1)


def _table(
    config: SyntheticConfig, items: Items, times: Ints, session: Ints, user: Ints, chosen: Ints
) -> pa.Table:
    return pa.table(
        {
            "session_id": pa.array(1_000_000 + session).cast(pa.string()),
            "user_id": pa.array(user, mask=user < 0).cast(pa.string()),
            "item_id": pa.array(items.ids[chosen]),
            "event_time": pa.array(microseconds(config.start) + times).cast(TIMESTAMP),
            "category": items.categories.take(pa.array(chosen)),
            "price": pa.array(items.price[chosen]),
        }
    )
