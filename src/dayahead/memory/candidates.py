"""Candidates: the items that a fixed mixture of the memories expects after a prefix."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.selection import highest
from dayahead.memory.table import Columns, Floats32, Level, row_of

POPULAR_SHARE = 0.4
OWN_SHARE = 10.0
"""Score of each item of the prefix itself: large enough that these come first."""
N_OWN = 20
"""Last clicks of a prefix whose items are candidates."""


class Proposal(NamedTuple):
    """What a memory expects after each of B prefixes: items in rows of a table."""

    levels: tuple[Level, Level]
    """Of the table, with all its channels."""
    rows: Ints
    """[B, R] keys of the rows; missing ones count as empty."""
    weights: Floats32
    """[R, K] weight of each row in each of the channels used."""
    channels: Ints
    """[K] the channels used."""
    doubt: float
    """Prior count of a row: a row with a total of this gets half of its weight."""


class _Pool(NamedTuple):
    """Buffers to mix the memories for one prefix."""

    mixture: Floats32
    """[n] score of each item; all 0 between prefixes."""
    touched: Ints
    """[n + 1] items with a score, in the order in which they got one, and room for one more."""
    popularity: Floats32
    """[n] 0 for items that must not be candidates."""


def choose(
    prefixes: Clicks,
    proposals: Sequence[Proposal],
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
    pool = _Pool(np.zeros(n, np.float32), np.zeros(n + 1, np.int64), popularity)
    own = prefixes.latest(N_OWN)
    return _chosen(own, pool, tuple(proposals), popular, n_candidates)


def most_popular(popularity: Floats32, n_items: int) -> Ints:
    """Return the items with the highest popularity above 0, at most `n_items`, best first."""
    popular = np.argsort(-popularity, kind="stable")[:n_items]
    return np.asarray(popular[popularity[popular] > 0])


@compiled
def _add(pool: _Pool, n_touched: int, items: Columns | Ints, scores: Floats32) -> int:
    """Add to the scores of items in the mixture; return the number of items touched."""
    mixture, touched, popularity = pool
    for i in range(len(items)):
        item = items[i]
        if popularity[item] > 0:
            score = mixture[item]
            # Without a branch, which would be mispredicted too often: the next item touched
            # overwrites one that is not new.
            is_new = score == 0
            touched[n_touched] = item
            n_touched += is_new
            # Popularity is added once per item; it is above 0, so 0 means "not yet touched".
            first = np.float32(POPULAR_SHARE) * popularity[item]
            mixture[item] = (first if is_new else score) + scores[i]
    return n_touched


@compiled
def _add_row(pool: _Pool, n_touched: int, proposal: Proposal, b: int, r: int) -> int:
    """Add the items in one of the rows that a memory proposes for prefix b."""
    key, channels = proposal.rows[b, r], proposal.channels
    totals = np.full(len(channels), np.float32(proposal.doubt))
    for level in proposal.levels:
        row = row_of(level.cells, key)
        if row >= 0:
            totals += level.cells.masses[row][channels] * level.decay[channels]
    for level in proposal.levels:
        row, cells = row_of(level.cells, key), level.cells
        if row < 0:
            continue
        factors = proposal.weights[r] * level.decay[channels] / totals
        start, end = cells.offsets[row], cells.offsets[row + 1]
        scores, values = np.zeros(end - start, np.float32), cells.values[start:end]
        for i in range(len(scores)):
            for k in range(len(factors)):
                scores[i] += factors[k] * values[i, channels[k]]
        n_touched = _add(pool, n_touched, cells.columns[start:end], scores)
    return n_touched


@compiled
def _chosen(
    own: Ints, pool: _Pool, proposals: tuple[Proposal, ...], popular: Ints, n_candidates: int
) -> Columns:
    chosen = np.zeros((len(own), n_candidates), np.int32)
    of_own = np.full(own.shape[1], np.float32(OWN_SHARE))
    no_score = np.zeros(len(popular), np.float32)
    for b in range(len(chosen)):
        n_touched = 0
        n_touched = _add(pool, n_touched, own[b], of_own)
        for proposal in proposals:
            for r in range(proposal.rows.shape[1]):
                n_touched = _add_row(pool, n_touched, proposal, b, r)
        # A score of 0: the first touch alone adds the item's popularity.
        n_touched = _add(pool, n_touched, popular, no_score)
        touched = pool.touched[:n_touched]
        best = highest(pool.mixture[touched], n_candidates)
        chosen[b, : len(best)] = touched[best]
        # Clear only the touched items: clearing all n would cost more than scoring the prefix.
        pool.mixture[touched] = 0
    return chosen
