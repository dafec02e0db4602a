"""Candidates: the items that a fixed mixture of the memories expects after a prefix."""

from typing import NamedTuple

import numpy as np

from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.neighbours import N_SUMS, Neighbourhood
from dayahead.memory.pairs import CHANNELS, WEIGHTS
from dayahead.memory.table import Cells, Columns, Floats32

SHARES = {
    ("next", 1.0): 0.2,
    ("next", 4.0): 0.2,
    ("next", 16.0): 0.1,
    ("forward", 4.0): 0.15,
    ("backward", 4.0): 0.05,
}
"""Weight of each pair channel in the mixture."""
NEIGHBOUR_SHARE = 0.2
POPULAR_SHARE = 0.4
OWN_SHARE = 10.0
"""Score of each item of the prefix itself: large enough that these come first."""
DOUBT = 3.0
"""Prior count of a row of pairs: a row with a total of this gets half of its share."""
_NEIGHBOUR_SHARES = np.full(N_SUMS, NEIGHBOUR_SHARE / N_SUMS, np.float32)
_CHANNELS = np.array([CHANNELS.index(channel) for channel in SHARES])
_WEIGHTS = WEIGHTS[:, _CHANNELS] * np.array(list(SHARES.values()), np.float32)


class _Pool(NamedTuple):
    """Buffers to mix the memories for one prefix, and the weights of the pair channels."""

    mixture: Floats32
    """[n] score of each item; all 0 between prefixes."""
    touched: Ints
    """[n] items with a score, in the order in which they got one."""
    popularity: Floats32
    """[n] 0 for items that must not be candidates."""
    channels: Ints
    """[K] channels of the pairs that are mixed."""
    weights: Floats32
    """[R, K] weight of each channel at each of the prefix's clicks, the last one first."""


def choose(
    prefixes: Clicks,
    pairs: Cells,
    neighbours: Neighbourhood,
    popularity: Floats32,
    popular: Ints,
    n_candidates: int,
) -> Columns:
    """Return the best `n_candidates` items [B, C] of each prefix, best first, 0 where fewer.

    `popularity` [n] is a share, 0 for items that are not wanted; `popular` are the most popular
    items. A prefix's own items are candidates even where no session before has them: visitors come
    back to them.
    """
    n = len(popularity)
    pool = _Pool(np.zeros(n, np.float32), np.zeros(n, np.int64), popularity, _CHANNELS, _WEIGHTS)
    clicks = prefixes.items, prefixes.offsets
    return _chosen(*clicks, pool, pairs, neighbours, (popular, n_candidates))


def most_popular(popularity: Floats32, n_items: int) -> Ints:
    """Return the items with the highest popularity above 0, at most `n_items`, best first."""
    popular = np.argsort(-popularity, kind="stable")[:n_items]
    return np.asarray(popular[popularity[popular] > 0])


@compiled
def _add(pool: _Pool, n_touched: int, item: int, score: float | np.float32) -> int:
    """Add to an item's score in the mixture; return the number of items touched."""
    if pool.popularity[item] <= 0:
        return n_touched
    if pool.mixture[item] == 0:
        pool.touched[n_touched] = item
        # Popularity is added once per item; it is above 0, so 0 means "not yet touched".
        pool.mixture[item] = np.float32(POPULAR_SHARE) * pool.popularity[item]
        n_touched += 1
    pool.mixture[item] += np.float32(score)
    return n_touched


@compiled
def _add_pairs(pool: _Pool, n_touched: int, pairs: Cells, item: int, weights: Floats32) -> int:
    """Add the items that follow or precede one item of the prefix in the pair memory."""
    row = np.searchsorted(pairs.rows, item)
    if row == len(pairs.rows) or pairs.rows[row] != item:
        return n_touched
    factors = weights / (pairs.masses[row][pool.channels] + np.float32(DOUBT))
    for cell in range(pairs.offsets[row], pairs.offsets[row + 1]):
        score = np.float32(0)
        for k in range(len(factors)):
            score += factors[k] * pairs.values[cell, pool.channels[k]]
        n_touched = _add(pool, n_touched, pairs.columns[cell], score)
    return n_touched


@compiled
def _chosen(
    items: Ints,
    offsets: Ints,
    pool: _Pool,
    pairs: Cells,
    neighbours: Neighbourhood,
    wanted: tuple[Ints, int],
) -> Columns:
    popular, n_candidates = wanted
    chosen = np.zeros((len(offsets) - 1, n_candidates), np.int32)
    for b in range(len(chosen)):
        n_touched, last = 0, offsets[b + 1] - 1
        for r in range(min(len(pool.weights), last + 1 - offsets[b])):
            n_touched = _add(pool, n_touched, items[last - r], OWN_SHARE)
            n_touched = _add_pairs(pool, n_touched, pairs, items[last - r], pool.weights[r])
        start, end = neighbours.offsets[b], neighbours.offsets[b + 1]
        shares = _NEIGHBOUR_SHARES / (neighbours.values[start:end, :N_SUMS].sum(0) + np.float32(1))
        for i in range(start, end):
            score = np.float32(0)
            for k in range(N_SUMS):
                score += shares[k] * neighbours.values[i, k]
            n_touched = _add(pool, n_touched, neighbours.items[i], score)
        for item in popular:
            # A score of 0: the first touch alone adds the item's popularity.
            n_touched = _add(pool, n_touched, item, 0.0)
        touched = pool.touched[:n_touched]
        # Stable: ties keep the order of touch. Numba calls its only stable sort "mergesort".
        order = np.argsort(-pool.mixture[touched], kind="mergesort")[:n_candidates]
        chosen[b, : len(order)] = touched[order]
        # Clear only the touched items: clearing all n would cost more than scoring the prefix.
        pool.mixture[touched] = 0
    return chosen
