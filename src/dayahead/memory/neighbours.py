"""Session neighbours: the latest sessions that share items with a prefix, and their items."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.ragged import offsets_of
from dayahead.memory.candidates import Proposal
from dayahead.memory.cells import Cells
from dayahead.memory.clicks import Clicks, Columns, Floats, Floats32, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.evidence import CountMemory
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Lookup, Moment, one_level
from dayahead.memory.selection import kth_lowest
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import LEVEL_RATIO

N_LATEST, N_EARLIER, N_BEST, REACH = range(4)
"""Positions in the array of limits."""
SHARE, DOUBT = 0.2, 1.0
"""Weight of the neighbours in the mixture that chooses candidates, and their prior count there."""


class Weights(NamedTuple):
    """Weight of each session at one time."""

    by_half_life: Floats32
    """[S, H] 2^(-age/h) / sqrt(length)."""
    total: Floats32
    """[S] the sum over half-lives."""


class Postings(NamedTuple):
    """Inverted index: the sessions that contain each item, latest first."""

    offsets: Ints
    """[n + 1] start of each item's sessions, and the end of the last one's."""
    sessions: Columns


class _Scratch(NamedTuple):
    """Buffers to compare a prefix with sessions."""

    sums: Floats32
    """[S] sum of the weights of the shared items; all 0 between prefixes."""
    shared: Ints
    """[S] the latest item of the prefix that each session contains."""
    touched: Columns
    """[S] sessions that share an item, in the order in which they were found."""


class SessionMemory(CountMemory):
    """The latest sessions, found by their items; similar to STAN (Garg et al., SIGIR 2019).

    The items of a prefix's nearest sessions are a row of a table that is made for the prefix. Its
    channels are sums of similarity over distance, then of sharpened similarity: raised to a power,
    so that the best sessions count more.
    """

    name = "sessions"
    is_share = True
    prior = 1.0
    joins_past = True

    def __init__(self, settings: MemorySettings) -> None:
        self.config = settings.config
        self.unit = settings.unit
        half_lives = settings.half_lives("neighbour")
        self.half_lives = np.array([half_life.windows for half_life in half_lives])
        """[H] windows in which a session loses half of its weight."""
        self.names = tuple(
            f"neighbours.{kind}.{half_life.name}"
            for kind in ("items", "sharp")
            for half_life in half_lives
        )
        # Totals of the sharpened channels would add nothing.
        self.n_masses = len(self.half_lives)
        self._weights: tuple[int, Weights] | None = None
        self.items = np.zeros(0, np.int32)
        """[N] items of the sessions kept, the oldest session first."""
        self.offsets = np.zeros(1, np.int64)
        self.times = np.zeros(0, np.int64)
        """[S] microseconds, of each session's last click."""
        self.has_weights = settings.has_weights
        self.worth = np.zeros(0, np.float32)
        """[N] what each of the items counts; empty where all count 1."""
        self.ids = np.zeros(0, np.int64)
        """[S] by which a session is found that has grown; 0 of sessions that will not."""
        self.is_live = settings.tick > 0
        self.n_added = 0
        """Sessions added since the last `compact`."""
        self._is_indexed = False
        self.postings: Postings
        self.grow(0)

    def grow(self, n_items: int) -> None:
        """Extend the index to a catalogue of `n_items`."""
        n = n_items + N_RESERVED
        if not self._is_indexed:
            self._index(n)
            return
        # No session has the new items yet.
        offsets = np.pad(self.postings.offsets, (0, n + 1 - len(self.postings.offsets)), "edge")
        self.postings = Postings(offsets, self.postings.sessions)

    def _index(self, n: int) -> None:
        self._is_indexed = True
        n_posted = max(self.config.n_latest, self.config.n_earlier)
        self.postings = Postings(*_posted(self.items, self.offsets, n, n_posted))

    def add(self, growth: Growth, _ages: Floats, _elapsed: float) -> None:
        """Add sessions, ordered by time, and drop those that no search can find.

        A session that has grown is replaced.
        """
        if not self.config.n_best:
            return
        self._weights = None
        n = len(self.postings.offsets) - 1
        growth = growth.with_new_clicks()
        self._keep(~np.isin(self.ids, growth.ids[growth.n_counted > 0]))
        sessions = growth.sessions
        self.ids = np.append(self.ids, growth.ids)
        self.items = np.append(self.items, sessions.items.astype(np.int32))
        if self.has_weights:
            new = sessions.worth_of(np.arange(len(sessions.items)))
            new = np.broadcast_to(new, len(sessions.items)).astype(np.float32)
            self.worth = np.append(self.worth, new)
        self.offsets = np.append(self.offsets, self.offsets[-1] + sessions.offsets[1:])
        self.times = np.append(self.times, sessions.times[sessions.last])
        self._index(n)
        self.n_added += len(sessions)
        if not self.is_live or self.n_added * LEVEL_RATIO > len(self.times):
            self.compact()

    def compact(self) -> None:
        """Drop the sessions that no search can find, and the oldest beyond `max_sessions`."""
        if not self.n_added:
            return
        n = len(self.postings.offsets) - 1
        self.n_added = 0
        is_kept = np.zeros(len(self.times), bool)
        is_kept[self.postings.sessions] = True
        is_kept[: -self.config.max_sessions] = False
        # Dropping sessions renumbers the others, hence the index is built a second time.
        self._keep(is_kept)
        self._index(n)

    def _keep(self, is_kept: NDArray[np.bool_]) -> None:
        lengths = np.diff(self.offsets)
        is_kept_item = is_kept.repeat(lengths)
        self.items = self.items[is_kept_item]
        self.worth = self.worth[is_kept_item] if self.has_weights else self.worth
        self.offsets = offsets_of(lengths[is_kept])
        self.times, self.ids = self.times[is_kept], self.ids[is_kept]
        self._weights = None

    def weights(self, end: int) -> Weights:
        """Return the weight of each session at the time `end`."""
        if self._weights is None or self._weights[0] != end:
            ages = np.maximum(end - self.times, 0)[:, None] / self.unit
            worth = np.exp2(-ages / self.half_lives) / np.sqrt(np.diff(self.offsets))[:, None]
            by_half_life = worth.astype(np.float32)
            self._weights = end, Weights(by_half_life, by_half_life.sum(1))
        return self._weights[1]

    def search(self, prefixes: Clicks, end: int) -> Cells:
        """Find the sessions nearest to each prefix, and sum up their items: a row each."""
        chosen, rows = self.config, np.arange(len(prefixes))
        if not chosen.n_best:
            masses = np.zeros((len(prefixes), len(self.names)), np.float32)
            offsets = np.zeros(len(prefixes) + 1, np.int64)
            return Cells(rows, offsets, np.zeros(0, np.int32), masses[:0], masses)
        n_best, weights = min(chosen.n_best, max(1, len(self.times))), self.weights(end)
        limits = np.array([chosen.n_latest, chosen.n_earlier, n_best, chosen.reach])
        clicks = prefixes.items, prefixes.offsets
        found = _nearest(*clicks, self.postings, weights.total, limits, chosen.fade)
        factors = np.array([chosen.backward, chosen.sharpness])
        sessions = self.items, self.offsets, self.worth
        n = len(self.postings.offsets) - 1
        return Cells(rows, *_sums_of_items(found, weights.by_half_life, sessions, factors, n))

    def lookups(self, prefixes: Clicks, now: Moment) -> list[Lookup]:
        """Return a row for each prefix."""
        cells, ones = self.search(prefixes, now.time), np.ones((1, len(self.names)), np.float32)
        return [Lookup(one_level(cells), cells.rows[:, None], ones)]

    def propose(self, lookups: Sequence[Lookup]) -> list[Proposal]:
        """Propose the neighbours' items by plain similarity."""
        plain, same = np.arange(self.n_masses), np.zeros(1, np.int64)
        weights = np.full((1, self.n_masses), SHARE / self.n_masses, np.float32)
        fades = np.ones(1, np.float32)
        return [
            Proposal(each.levels, each.rows, weights, same, fades, plain, DOUBT) for each in lookups
        ]

    def state_dict(self) -> dict[str, Tensor]:
        """Items int32 [N], offsets int64 [S + 1], times and ids int64 [S] of the sessions kept.

        With weights also the worth of the items, float32 [N].
        """
        if self.n_added:
            self.compact()
        arrays = {"items": self.items, "offsets": self.offsets, "times": self.times}
        arrays |= {"ids": self.ids, **({"worth": self.worth} if self.has_weights else {})}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all sessions; `grow` indexes them."""
        names = ("items", "offsets", "times", "ids")
        self.items, self.offsets, self.times, self.ids = (state[name].numpy() for name in names)
        self.worth = state["worth"].numpy() if self.has_weights else self.worth
        self._weights, self.n_added, self._is_indexed = None, 0, False


@compiled
def _posted(items: Columns, offsets: Ints, n: int, n_latest: int) -> tuple[Ints, Columns]:
    """Return offsets [n + 1] and sessions of the postings, each item's latest first."""
    counts = np.zeros(n + 1, np.int64)
    newest = np.full(n, -1, np.int64)
    is_posted = np.zeros(len(items), np.bool_)
    session_of = np.zeros(len(items), np.int32)
    for s in range(len(offsets) - 2, -1, -1):
        for i in range(offsets[s], offsets[s + 1]):
            item = items[i]
            session_of[i] = s
            if item >= N_RESERVED and newest[item] != s and counts[item + 1] < n_latest:
                newest[item] = s
                counts[item + 1] += 1
                is_posted[i] = True
    ends = np.cumsum(counts)
    sessions = np.empty(ends[-1], np.int32)
    place = ends.copy()  # each item's postings are written from the last to the first
    for posted in np.flatnonzero(is_posted):
        place[items[posted] + 1] -= 1
        sessions[place[items[posted] + 1]] = session_of[posted]
    return ends, sessions


@compiled
def _is_latest(prefix: Ints, i: int) -> bool:
    """Whether the item at position i of a prefix is known and not clicked again later."""
    for j in range(i + 1, len(prefix)):
        if prefix[j] == prefix[i]:
            return False
    return bool(prefix[i] >= N_RESERVED)


@compiled
def _similar(prefix: Ints, postings: Postings, limits: Ints, fade: float, scratch: _Scratch) -> int:
    """Sum up the weights of the items that each session shares with a prefix.

    Returns the number of sessions touched.
    """
    n_touched, last = 0, len(prefix) - 1
    weight = np.float32(1.0)
    for i in range(last, max(-1, last - limits[REACH]), -1):
        if weight == 0:  # as a sum, 0 says that a session is not yet touched
            break
        start, end = postings.offsets[prefix[i]], postings.offsets[prefix[i] + 1]
        end = min(end, start + limits[N_LATEST if i == last else N_EARLIER])
        if _is_latest(prefix, i):
            for s in postings.sessions[start:end]:
                if scratch.sums[s] == 0:
                    scratch.touched[n_touched] = s
                    scratch.shared[s] = prefix[i]
                    n_touched += 1
                scratch.sums[s] += weight
        weight *= np.float32(fade)
    return n_touched


@compiled
def _nearest(
    items: Ints, offsets: Ints, postings: Postings, weights: Floats32, limits: Ints, fade: float
) -> tuple[Columns, Floats32, Ints]:
    """Return each prefix's best sessions [B, S] (-1: none), similarities and latest shared items.

    The best have the largest product of the shared items' weight and the session's weight [S].
    """
    shape = len(offsets) - 1, limits[N_BEST]
    nearest = np.full(shape, -1, np.int32)
    sums, shared = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    n = len(weights)
    scratch = _Scratch(np.zeros(n, np.float32), np.zeros(n, np.int64), np.zeros(n, np.int32))
    similar = np.zeros(n, np.float32)
    for b in range(shape[0]):
        prefix = items[offsets[b] : offsets[b + 1]]
        n_near = 0
        for t in range(_similar(prefix, postings, limits, fade, scratch)):
            s = scratch.touched[t]
            similar[n_near] = scratch.sums[s] * weights[s]
            scratch.sums[s] = 0
            if similar[n_near] > 0:  # the oldest have no weight left
                scratch.touched[n_near] = s
                n_near += 1
        n_best, lowest = 0, np.float32(0)
        if n_near > shape[1]:
            lowest = kth_lowest(similar[:n_near].copy(), n_near - shape[1])
        # First all above the k-th value, then ties with it in the order found, until there are k.
        for is_tie in (False, True):
            for t in range(n_near):
                is_chosen = similar[t] == lowest if is_tie else similar[t] > lowest
                if is_chosen and n_best < shape[1]:
                    s = scratch.touched[t]
                    nearest[b, n_best], sums[b, n_best] = s, similar[t] / weights[s]
                    shared[b, n_best] = scratch.shared[s]
                    n_best += 1
    return nearest, sums, shared


@compiled
def _worths(sums: Floats32, weights: Floats32, sharpness: float) -> Floats32:
    """Return similarities [S, K] of a prefix's neighbours: plain, then sharpened."""
    plain = sums[:, None] * weights
    worths = np.zeros((len(sums), 2 * weights.shape[1]), np.float32)
    for k in range(weights.shape[1]):
        highest = np.append(plain[:, k], np.float32(0)).max()
        for s in range(len(sums) if highest > 0 else 0):
            # Relative to the best neighbour, which keeps its similarity whatever the power.
            share = (plain[s, k] / highest) ** np.float32(sharpness - 1)
            worths[s, k], worths[s, weights.shape[1] + k] = plain[s, k], plain[s, k] * share
    return worths


@compiled
def _factor(i: int, at: int, backward: float, worth: Floats32) -> np.float32:
    """Return the weight of the item at i, by its distance from the shared one and its worth."""
    factor = np.float32(1 / (i - at) if i > at else backward / (at - i))
    return factor * worth[i] if len(worth) else factor


@compiled
def _last(items: Columns, start: int, stop: int, item: int) -> int:
    """Return the last place of an item that is between two places."""
    at = stop - 1
    while at > start and items[at] != item:
        at -= 1
    return at


@compiled
def _sums_of_items(
    found: tuple[Columns, Floats32, Ints],
    weights: Floats32,
    sessions: tuple[Columns, Ints, Floats32],
    factors: Floats,
    n: int,
) -> tuple[Ints, Columns, Floats32, Floats32]:
    """Sum up the items of the sessions found.

    Returns offsets [B + 1], items [M], values [M, K] and their totals by prefix [B, K].
    """
    (nearest, shares, shared), (items, offsets, worth) = found, sessions
    size = 0
    for s in nearest.ravel():
        size += offsets[s + 1] - offsets[s] if s >= 0 else 0
    ends, columns = np.zeros(len(nearest) + 1, np.int64), np.empty(size, np.int32)
    # An upper bound of the size: an item that several neighbours have is stored once.
    values = np.empty((size, 2 * weights.shape[1]), np.float32)
    masses = np.zeros((len(nearest), values.shape[1]), np.float32)
    place = np.full(n, -1, np.int64)
    end = 0
    for b in range(len(nearest)):
        near = nearest[b, : np.sum(nearest[b] >= 0)]
        worths = _worths(shares[b, : len(near)], weights[near], factors[1])
        for c in range(len(near)):
            start, stop = offsets[near[c]], offsets[near[c] + 1]
            # Items are weighed by their distance from the last occurrence of the shared item.
            at = _last(items, start, stop, shared[b, c])
            for i in range(start, stop):
                item = items[i]
                if i == at or item < N_RESERVED:
                    continue
                if place[item] < 0:
                    place[item], columns[end], values[end] = end, item, 0
                    end += 1
                factor = _factor(i, at, factors[0], worth)
                to = place[item]
                for k in range(values.shape[1]):
                    values[to, k] += worths[c, k] * factor
        place[columns[ends[b] : end]] = -1
        masses[b] = values[ends[b] : end].sum(0)
        ends[b + 1] = end
    return ends, columns[:end].copy(), values[:end].copy(), masses
