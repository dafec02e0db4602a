"""Candidates: the items that a fixed mixture of the memories expects after a prefix."""

import numpy as np
from numpy.typing import NDArray

from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.neighbours import Neighbourhood
from dayahead.memory.pairs import CHANNELS, FADE, FORWARD, NEXT, BACKWARD, REACH
from dayahead.memory.table import Cells

SHARES = {(NEXT, 1.0): 0.2, (NEXT, 4.0): 0.2, (NEXT, 16.0): 0.1}
"""Of the last item's pairs in the mixture, by channel; the other shares follow."""
NEXT_SHARES = np.array([SHARES.get(channel, 0.0) for channel in CHANNELS], np.float32)
MET_SHARES = np.array(
    [{(FORWARD, 4.0): 0.15, (BACKWARD, 4.0): 0.05}.get(channel, 0.0) for channel in CHANNELS],
    np.float32,
)
NEIGHBOUR_SHARE, POPULAR_SHARE = 0.2, 0.4
DOUBT = 3.0
"""Clicks that a row of pairs must have to weigh half its share."""


def choose(
    prefixes: Clicks,
    pairs: Cells,
    neighbours: Neighbourhood,
    popularity: NDArray[np.float64],
    n_candidates: int,
) -> NDArray[np.int32]:
    """Return the best `n_candidates` items [B, C] of each prefix, best first, 0 where fewer.

    `popularity` [n] is a share, 0 or less for items that are not wanted. Items of the prefix itself
    come first.
    """
    popular = np.argsort(-popularity, kind="stable")[:n_candidates]
    popular = popular[popularity[popular] > 0]
    arrays = prefixes.items, prefixes.offsets, pairs, neighbours, popularity.astype(np.float32)
    return _chosen(*arrays, popular, NEXT_SHARES, MET_SHARES, n_candidates)


@compiled
def _chosen(  # noqa: C901, PLR0912, PLR0913, PLR0914, PLR0915, PLR0917
    items: Ints,
    offsets: Ints,
    pairs: Cells,
    neighbours: Neighbourhood,
    popularity: NDArray[np.float32],
    popular: Ints,
    next_shares: NDArray[np.float32],
    met_shares: NDArray[np.float32],
    n_candidates: int,
) -> NDArray[np.int32]:
    n_prefixes, n_channels = len(offsets) - 1, len(next_shares)
    chosen = np.zeros((n_prefixes, n_candidates), np.int32)
    mixture = np.zeros(len(popularity), np.float32)
    touched = np.zeros(len(popularity), np.int64)
    factors = np.zeros(n_channels, np.float32)
    for b in range(n_prefixes):
        n_touched = 0
        weight = np.float32(1.0)
        for i in range(offsets[b + 1] - 1, max(offsets[b], offsets[b + 1] - REACH) - 1, -1):
            item = items[i]
            if item < len(popularity) and popularity[item] > 0:
                if mixture[item] == 0:
                    touched[n_touched] = item
                    n_touched += 1
                mixture[item] += np.float32(10.0)
            row = np.searchsorted(pairs.rows, item)
            if row < len(pairs.rows) and pairs.rows[row] == item:
                for k in range(n_channels):
                    share = met_shares[k] * weight
                    if i == offsets[b + 1] - 1:
                        share += next_shares[k]
                    factors[k] = share / (pairs.masses[row, k] + np.float32(DOUBT))
                for cell in range(pairs.offsets[row], pairs.offsets[row + 1]):
                    item = pairs.columns[cell]
                    if popularity[item] <= 0:
                        continue
                    score = np.float32(0.0)
                    for k in range(n_channels):
                        if factors[k] != 0:
                            score += factors[k] * pairs.values[cell, k]
                    if score > 0:
                        if mixture[item] == 0:
                            touched[n_touched] = item
                            n_touched += 1
                        mixture[item] += score
            weight *= np.float32(FADE)
        start, end = neighbours.offsets[b], neighbours.offsets[b + 1]
        mass = neighbours.values[start:end, 0].sum() + np.float32(1.0)
        for i in range(start, end):
            item = neighbours.items[i]
            if popularity[item] > 0:
                if mixture[item] == 0:
                    touched[n_touched] = item
                    n_touched += 1
                mixture[item] += np.float32(NEIGHBOUR_SHARE) * neighbours.values[i, 0] / mass
        for item in popular:
            if mixture[item] == 0:
                touched[n_touched] = item
                n_touched += 1
        scores = np.empty(n_touched, np.float32)
        for t in range(n_touched):
            item = touched[t]
            scores[t] = mixture[item] + np.float32(POPULAR_SHARE) * popularity[item]
            mixture[item] = 0
        order = np.argsort(-scores, kind="mergesort")[:n_candidates]
        chosen[b, : len(order)] = touched[order]
    return chosen
