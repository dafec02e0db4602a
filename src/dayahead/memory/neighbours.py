"""Session neighbours: the latest sessions that share items with a prefix, and what they hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.table import Floats

NAMES = ("neighbours.items", "neighbours.sharp")


@dataclass(frozen=True)
class NeighbourSettings:
    """Which sessions are kept and compared."""

    n_latest: int = 600
    """Sessions that hold the last item, latest first; older ones of every item are forgotten."""
    n_earlier: int = 300
    """Sessions that hold an item before it."""
    n_best: int = 200
    """Sessions whose items count."""
    fade: float = 0.7
    """Weight of a shared item, in parts of that of the one after it in the prefix."""
    half_life: float = 2.0
    """Of a session, in windows."""
    reach: int = 10
    """Items of a prefix that are compared."""
    backward: float = 0.5
    """Worth of a neighbour's items before the shared one, in parts of those after it."""
    sharpness: float = 3.0
    """Power of similarity in the second channel."""
    max_sessions: int = 200_000
    """Sessions kept, the latest."""


class Neighbourhood(NamedTuple):
    """Items of each prefix's neighbours."""

    offsets: Ints
    """[B + 1]"""
    items: NDArray[np.int32]
    """[M]"""
    values: NDArray[np.float32]
    """[M, 2] sums of similarity over distance, with similarity as it is and sharpened."""


class _Postings(NamedTuple):
    """The sessions that hold each item, latest first."""

    offsets: Ints
    """[n + 1]"""
    sessions: NDArray[np.int32]


class SessionMemory:
    """The latest sessions, found by their items (V-SkNN, Ludewig and Jannach 2018)."""

    def __init__(self, settings: NeighbourSettings) -> None:
        self.settings = settings
        self.items = np.zeros(0, np.int32)
        """[N] items of the sessions kept, the oldest session first."""
        self.offsets = np.zeros(1, np.int64)
        self.times = np.zeros(0, np.int64)
        """[S] microseconds, of each session's last click."""
        self._index(N_RESERVED)

    def grow(self, n_items: int) -> None:
        """Extend the index to a catalogue of `n_items`."""
        self._index(n_items + N_RESERVED)

    def _index(self, n: int) -> NDArray[np.bool_]:
        """Index the sessions by item; return which of them are found by at least one."""
        offsets, sessions, is_found = _posted(self.items, self.offsets, n, self.settings.n_latest)
        self.postings = _Postings(offsets, sessions)
        return is_found

    def add(self, sessions: Clicks) -> None:
        """Add sessions, ordered by time, and forget those that no search would reach."""
        n = len(self.postings.offsets) - 1
        self.items = np.append(self.items, sessions.items.astype(np.int32))
        self.offsets = np.append(self.offsets, self.offsets[-1] + sessions.offsets[1:])
        self.times = np.append(self.times, sessions.times[sessions.last])
        is_kept = self._index(n)
        is_kept[: max(0, len(is_kept) - self.settings.max_sessions)] = False
        lengths = np.diff(self.offsets)
        self.items = self.items[is_kept.repeat(lengths)]
        self.offsets = np.append(0, np.cumsum(lengths[is_kept]))
        self.times = self.times[is_kept]
        self._index(n)

    def weights(self, end: int, unit: int) -> Floats:
        """[S] worth of each session at the time `end`: 2^(-age/h) / sqrt(length)."""
        ages = np.maximum(end - self.times, 0) / unit
        return 2.0 ** (-ages / self.settings.half_life) / np.sqrt(np.diff(self.offsets))

    def search(self, prefixes: Clicks, weights: Floats) -> Neighbourhood:
        """Find each prefix's best neighbours and sum up their items."""
        own = self.items, self.offsets, self.postings, weights.astype(np.float32)
        chosen = self.settings
        limits = chosen.n_latest, chosen.n_earlier, chosen.n_best, chosen.reach
        factors = chosen.fade, chosen.backward, chosen.sharpness
        return Neighbourhood(*_search(prefixes.items, prefixes.offsets, *own, limits, factors))

    def state_dict(self) -> dict[str, Tensor]:
        """Items int32 [N], offsets int64 [S + 1] and times int64 [S] of the sessions kept."""
        arrays = {"items": self.items, "offsets": self.offsets, "times": self.times}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all sessions; the catalogue stays as it has grown."""
        self.items, self.offsets, self.times = (
            state[name].numpy() for name in ("items", "offsets", "times")
        )
        self._index(len(self.postings.offsets) - 1)


@compiled
def _posted(
    items: NDArray[np.int32], offsets: Ints, n: int, n_latest: int
) -> tuple[Ints, NDArray[np.int32], NDArray[np.bool_]]:
    """Return offsets [n + 1] and sessions of the postings, and which sessions are in them."""
    n_sessions = len(offsets) - 1
    counts = np.zeros(n, np.int64)
    newest = np.full(n, -1, np.int32)
    is_posted = np.zeros(len(items), np.bool_)
    is_found = np.zeros(n_sessions, np.bool_)
    for s in range(n_sessions - 1, -1, -1):
        for i in range(offsets[s], offsets[s + 1]):
            item = items[i]
            if item >= N_RESERVED and newest[item] != s and counts[item] < n_latest:
                newest[item] = s
                counts[item] += 1
                is_posted[i] = is_found[s] = True
    ends = np.zeros(n + 1, np.int64)
    ends[1:] = np.cumsum(counts)
    sessions = np.empty(ends[-1], np.int32)
    place = ends[:-1].copy()
    for s in range(n_sessions - 1, -1, -1):
        for i in range(offsets[s], offsets[s + 1]):
            if is_posted[i]:
                sessions[place[items[i]]] = s
                place[items[i]] += 1
    return ends, sessions, is_found


@compiled
def _similar(
    prefix: Ints,
    postings: _Postings,
    limits: tuple[int, int, int, int],
    fade: float,
    sums: NDArray[np.float32],
    shared: Ints,
    touched: NDArray[np.int32],
) -> int:
    """Sum up in `sums` the weights of the items that each session shares with a prefix.

    `shared` gets the latest item shared, `touched` the sessions; their number is returned.
    """
    n_latest, n_earlier, _, reach = limits
    n_touched, last = 0, len(prefix) - 1
    weight = np.float32(1.0)
    for i in range(last, max(-1, last - reach), -1):
        item = prefix[i]
        is_new = N_RESERVED <= item < len(postings.offsets) - 1
        for j in range(i + 1, last + 1):
            is_new &= prefix[j] != item
        if is_new:
            start = postings.offsets[item]
            end = min(postings.offsets[item + 1], start + (n_latest if i == last else n_earlier))
            for s in postings.sessions[start:end]:
                if sums[s] == 0:
                    touched[n_touched] = s
                    n_touched += 1
                    shared[s] = item
                sums[s] += weight
        weight *= np.float32(fade)
    return n_touched


@compiled
def _search(  # noqa: C901, PLR0912, PLR0913, PLR0914, PLR0915, PLR0917
    prefix_items: Ints,
    prefix_offsets: Ints,
    items: NDArray[np.int32],
    offsets: Ints,
    postings: _Postings,
    weights: NDArray[np.float32],
    limits: tuple[int, int, int, int],
    factors: tuple[float, float, float],
) -> tuple[Ints, NDArray[np.int32], NDArray[np.float32]]:
    fade, backward, sharpness = factors
    n_best = limits[2]
    n_prefixes, n_sessions = len(prefix_offsets) - 1, len(offsets) - 1
    sums = np.zeros(n_sessions, np.float32)
    shared = np.zeros(n_sessions, np.int64)
    touched = np.zeros(n_sessions, np.int32)
    place = np.full(len(postings.offsets), -1, np.int64)
    ends = np.zeros(n_prefixes + 1, np.int64)
    found = np.empty(n_prefixes * 256 + 1024, np.int32)
    values = np.zeros((len(found), 2), np.float32)
    end = 0
    for b in range(n_prefixes):
        prefix = prefix_items[prefix_offsets[b] : prefix_offsets[b + 1]]
        n_touched = _similar(prefix, postings, limits, fade, sums, shared, touched)
        near = touched[:n_touched]
        scores = sums[near] * weights[near]
        lowest = np.float32(0.0)
        n_ties = n_touched
        if n_touched > n_best:
            lowest = np.partition(scores, n_touched - n_best)[n_touched - n_best]
            n_ties = n_best - (scores > lowest).sum()
        highest = scores.max() if n_touched else np.float32(1.0)
        for t in range(n_touched):
            s, score = near[t], scores[t]
            if score == lowest:
                n_ties -= 1
            if score < lowest or (score == lowest and n_ties < 0):
                sums[s] = 0
                continue
            sharp = score * (score / highest) ** np.float32(sharpness - 1)
            at = offsets[s + 1] - 1
            while items[at] != shared[s]:
                at -= 1
            for i in range(offsets[s], offsets[s + 1]):
                item = items[i]
                if i == at or item < N_RESERVED:
                    continue
                worth = np.float32(1.0 / (i - at) if i > at else backward / (at - i))
                if place[item] < 0:
                    if end == len(found):
                        found = np.append(found, np.empty_like(found))
                        values = np.append(values, np.zeros_like(values), axis=0)
                    place[item] = end
                    found[end] = item
                    end += 1
                values[place[item], 0] += score * worth
                values[place[item], 1] += sharp * worth
            sums[s] = 0
        for i in range(ends[b], end):
            place[found[i]] = -1
        ends[b + 1] = end
    return ends, found[:end].copy(), values[:end].copy()
