"""Candidates: own items first, then the mixture; what is not wanted is never among them."""

import numpy as np
import pytest

from dayahead.memory import candidates
from dayahead.memory.memories import Memories
from dayahead.memory.neighbours import HALF_LIVES
from dayahead.memory.pairs import FADE
from support.clicks import HOUR, clicks, random_clicks
from support.memory_models import SETTINGS, SIZES

A, B, C, D, E, F = range(2, 8)


def memories(sessions):
    found = Memories(SETTINGS)
    found.grow(SIZES)
    found.add(sessions, HOUR)
    return found


def chosen(found, prefixes, n_candidates=8, allowed=None):
    return found.reader(n_candidates, allowed)(clicks(prefixes)).candidates.tolist()


def test_own_items_come_first_then_what_followed_then_what_is_popular():
    found = memories(clicks([[A, B], [C, D], [C, E], [E, D], [C, D]]))
    assert chosen(found, [[A]]) == [[A, B, D, E, C, 0, 0, 0]]


def test_only_items_seen_and_own_ones_are_candidates():
    found = memories(clicks([[A, B]]))
    assert chosen(found, [[F], [1]], 4) == [[F, B, A, 0], [B, A, 0, 0]]
    assert chosen(found, [[F, E, F]], 4) == [[F, E, B, A]]
    allowed = np.isin(np.arange(14), [A, E])
    assert chosen(found, [[F, E, F]], 4, allowed) == [[E, A, 0, 0]]


def test_only_items_allowed_are_candidates():
    found = memories(clicks([[A, B], [A, C], [C, D]]))
    allowed = np.isin(np.arange(14), [C, D])
    assert chosen(found, [[A, B]], 3, allowed) == [[C, D, 0]]


def test_without_memories_there_are_own_items_alone():
    found = Memories(SETTINGS)
    found.grow(SIZES)
    assert chosen(found, [[A], [1]], 2) == [[A, 0], [0, 0]]


def test_a_prefix_leaves_no_trace_in_the_next_ones():
    found = memories(random_clicks(3))
    prefixes = [[A, B, C], [D], [E, A], [D]]
    together = chosen(found, prefixes)
    assert together == [chosen(found, [prefix])[0] for prefix in prefixes]
    assert together[1] == together[3]


def test_the_mixture_agrees_with_loops():
    found = memories(random_clicks(5))
    prefixes = clicks([[B, A]])
    near = found.sessions.search(prefixes, found.sessions.weights(HOUR, HOUR))
    known, _ = found.known
    every = np.arange(14, dtype=np.int32)[None]
    pairs = (
        found.pairs.evidence(clicks([[A]]), every, 14),
        found.pairs.evidence(clicks([[B]]), every, 14),
    )
    worth = near.evidence(every, 14)
    wanted = candidates.POPULAR_SHARE * known.popularity
    for k, _ in enumerate(HALF_LIVES):
        share = candidates.NEIGHBOUR_SHARE / len(HALF_LIVES)
        wanted += share * worth.counts[0, :, k] / (worth.masses[0, k] + 1)
    for (kind, half_life), share in candidates.SHARES.items():
        k = candidates.CHANNELS.index((kind, half_life))
        weights = (1, FADE if kind in {"forward", "backward"} else 0)
        for weight, sums in zip(weights, pairs, strict=True):
            wanted += weight * share * sums.counts[0, :, k] / (sums.masses[0, k] + candidates.DOUBT)
    wanted[[A, B]] += candidates.OWN_SHARE
    order = [item for item in np.argsort(-wanted).tolist() if known.is_seen[item]]
    popular = candidates.most_popular(known.popularity * known.is_seen, len(order))
    found = candidates.choose(
        prefixes, found.pairs.table.cells, near, known.popularity, popular, len(order)
    )
    assert wanted[found[0]] == pytest.approx(wanted[order], rel=1e-5)
