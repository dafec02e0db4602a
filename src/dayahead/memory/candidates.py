"""Candidates: the items that a fixed mixture of the memories expects after a prefix."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dayahead.memory.clicks import Clicks, Columns, Flags, Floats32, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.lookup import Levels, row_of
from dayahead.memory.selection import highest

POPULAR_SHARE = 0.4
OWN_SHARE = 10.0
"""Score of each item of the prefix itself: large enough that these come first."""
N_OWN = 20
"""Last clicks of a prefix whose items are candidates."""


class Proposal(NamedTuple):
    """What a memory expects after each of B prefixes: items in rows of a table."""

    levels: Levels
    """Of the table, with all its channels."""
    rows: Ints
    """[B, R] keys of the rows; missing ones count as empty."""
    weights: Floats32
    """[W, K] weights of the channels used."""
    weights_of: Ints
    """[R] which of these weights each row has."""
    fades: Floats32
    """[R] factor of each row."""
    channels: Ints
    """[K] the channels used."""
    doubt: float
    """Prior count of a row: a row with a total of this gets half of its weight."""


class _Mixtures(NamedTuple):
    """Scores of the items in D distinct rows, without their fade."""

    columns: tuple[Columns, Columns, Columns]
    """Items of the cells in each level of the table."""
    spans: Ints
    """[3, D, 3] start and end of each row in the columns, and its start in the scores."""
    scores: Floats32
    numbers: Ints
    """[B, R] which of these rows each prefix has."""
    fades: Floats32
    """[R]"""


class _Pool(NamedTuple):
    """Buffers to mix the memories for one prefix."""

    mixture: Floats32
    """[n] score of each item that was touched; `start` between prefixes."""
    touched: Columns
    """[n + 1] items with a score, in the order in which they got one, and room for one more."""
    start: Floats32
    """[n] minus a share of the popularity: below 0 means not touched yet, NaN never a candidate."""


class Chooser:
    """Chooses the candidates of prefixes.

    A prefix's own items are candidates even where no session before has them: visitors come back to
    them.
    """

    def __init__(self, popularity: Floats32, is_seen: Flags, n_candidates: int) -> None:
        """Choose at most `n_candidates` items, by their `popularity` [n] and the memories.

        Popularity is a share, 0 for items that are not wanted. Items that are not seen are chosen
        where a memory proposes them, or a prefix has them.
        """
        self.n_candidates = n_candidates
        popular = highest(popularity * is_seen, n_candidates)
        self._popular: Ints = popular[popularity[popular] * is_seen[popular] > 0]
        first = np.float32(POPULAR_SHARE) * popularity
        self._start = np.where(popularity > 0, -first, np.float32(np.nan))
        has_enough = len(self._popular) == n_candidates
        self._floor = first[self._popular[-1]] if has_enough else np.float32(0)
        """`n_candidates` popular items have at least this score: no lower one is chosen."""

    def __call__(self, prefixes: Clicks, proposals: Sequence[Proposal]) -> Columns:
        """Return the best items [B, C] of each prefix, best first, 0 where there are fewer."""
        pool = _Pool(self._start.copy(), np.zeros(len(self._start) + 1, np.int32), self._start)
        mixtures = tuple(_mixtures_of(proposal) for proposal in proposals)
        own, popular = prefixes.latest(N_OWN), self._popular
        return _chosen(own, pool, mixtures, popular, self._floor, self.n_candidates)


def _mixtures_of(proposal: Proposal) -> _Mixtures:
    """Mix the channels of each row once, however many prefixes read it."""
    n_weights = len(proposal.weights)
    keys = proposal.rows * n_weights + proposal.weights_of
    distinct, numbers = np.unique(keys, return_inverse=True)
    spans, scores = _mixed(proposal, *np.divmod(distinct, n_weights))
    first, middle, last = (level.cells.columns for level in proposal.levels)
    columns = first, middle, last
    return _Mixtures(columns, spans, scores, numbers.reshape(keys.shape), proposal.fades)


@compiled
def _mixed(proposal: Proposal, keys: Ints, weights_of: Ints) -> tuple[Ints, Floats32]:
    """Return spans and scores of rows (see `_Mixtures`)."""
    channels = proposal.channels
    spans = np.zeros((len(proposal.levels), len(keys), 3), np.int64)
    totals = np.full((len(keys), len(channels)), np.float32(proposal.doubt))
    size = 0
    for at, level in enumerate(proposal.levels):
        for d in range(len(keys)):
            row = row_of(level.cells, keys[d])
            if row >= 0:
                start, end = level.cells.offsets[row], level.cells.offsets[row + 1]
                spans[at, d, 0], spans[at, d, 1], spans[at, d, 2] = start, end, size
                size += end - start
                totals[d] += level.cells.masses[row][channels] * level.decay[channels]
    scores = np.zeros(size, np.float32)
    for at, level in enumerate(proposal.levels):
        values, decay = level.cells.values, level.decay[channels]
        for d in range(len(keys)):
            factors = proposal.weights[weights_of[d]] * decay / totals[d]
            start, end, to = spans[at, d, 0], spans[at, d, 1], spans[at, d, 2]
            for i in range(end - start):
                for k in range(len(factors)):
                    scores[to + i] += factors[k] * values[start + i, channels[k]]
    return spans, scores


@compiled
def _add(
    pool: _Pool, n_touched: int, items: Columns | Ints, scores: Floats32, fade: np.float32
) -> int:
    """Add to the scores of items in the mixture; return the number of items touched."""
    mixture, touched, _ = pool
    # Without branches, which would be mispredicted too often.
    for i in range(len(items)):
        item = items[i]
        score = mixture[item]
        # The next item touched overwrites one that is not new. NaN is not, and stays NaN.
        touched[n_touched] = item
        n_touched += score < 0
        mixture[item] = abs(score) + fade * scores[i]
    return n_touched


@compiled
def _add_row(pool: _Pool, n_touched: int, mixtures: _Mixtures, b: int, r: int) -> int:
    """Add the items in one of the rows that a memory proposes for prefix b."""
    d = mixtures.numbers[b, r]
    for at, columns in enumerate(mixtures.columns):
        spans = mixtures.spans
        start, end, place = spans[at, d, 0], spans[at, d, 1], spans[at, d, 2]
        scores = mixtures.scores[place : place + end - start]
        n_touched = _add(pool, n_touched, columns[start:end], scores, mixtures.fades[r])
    return n_touched


@compiled
def _take_near(pool: _Pool, n_touched: int, floor: np.float32) -> tuple[Columns, Floats32]:
    """Return the items touched whose score is not below a floor, and the scores; clear all."""
    mixture, touched, start = pool
    scores, n_near = np.empty(n_touched + 1, np.float32), 0
    # Clear only the touched items: clearing all n would cost more than scoring the prefix.
    for i in range(n_touched):
        item = touched[i]
        score = mixture[item]
        mixture[item] = start[item]
        touched[n_near], scores[n_near] = item, score
        n_near += score >= floor
    return touched[:n_near], scores[:n_near]


@compiled
def _chosen(
    own: Ints,
    pool: _Pool,
    mixtures: tuple[_Mixtures, ...],
    popular: Ints,
    floor: np.float32,
    n_candidates: int,
) -> Columns:
    chosen = np.zeros((len(own), n_candidates), np.int32)
    of_own = np.full(own.shape[1], np.float32(OWN_SHARE))
    no_score = np.zeros(len(popular), np.float32)
    one = np.float32(1)
    for b in range(len(chosen)):
        n_touched = 0
        n_touched = _add(pool, n_touched, own[b], of_own, one)
        for each in mixtures:
            for r in range(each.numbers.shape[1]):
                n_touched = _add_row(pool, n_touched, each, b, r)
        # A score of 0: the first touch alone adds the item's popularity.
        n_touched = _add(pool, n_touched, popular, no_score, one)
        near, scores = _take_near(pool, n_touched, floor)
        best = highest(scores, n_candidates)
        chosen[b, : len(best)] = near[best]
    return chosen
