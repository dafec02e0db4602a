"""Candidates: own items first, then the mixture; what is not wanted is never among them."""

import numpy as np
import pytest

from dayahead.memory import candidates
from dayahead.memory.evidence import nearest
from dayahead.memory.memories import Memories
from dayahead.memory.neighbours import DOUBT, SHARE
from dayahead.memory.pairs import DOUBT as PAIR_DOUBT
from dayahead.memory.pairs import FADE, SHARES
from support.clicks import HOUR, clicks, random_clicks
from support.memory_models import CONFIG, SETTINGS, SIZES, counted

A, B, C, D, E, F = range(2, 8)


def memories(sessions):
    found = Memories(SETTINGS)
    found.grow(SIZES)
    found.add([sessions], HOUR)
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


@pytest.mark.parametrize("n_hours", [1, 30])
def test_the_mixture_agrees_with_loops(n_hours):
    found = memories(random_clicks(5))
    found.move_to(n_hours * HOUR)
    prefixes = clicks([[B, A]])
    known, sessions, pairs = found.known, found.memories["sessions"], found.pairs
    every = np.arange(14, dtype=np.int32)[None]
    of_pairs = [counted(pairs, clicks([[item]]), every, 14, found.moment) for item in (A, B)]
    near = counted(sessions, prefixes, every, 14, found.moment)
    wanted = candidates.POPULAR_SHARE * known.popularity
    for k, _ in enumerate(CONFIG.neighbour_half_lives):
        share = SHARE / len(CONFIG.neighbour_half_lives)
        wanted += share * near.counts[0, :, k] / (near.masses[0, k] + DOUBT)
    for (kind, half_life), share in SHARES.items():
        k = nearest(pairs.channels, kind, half_life)
        weights = (1, FADE if kind in {"forward", "backward"} else 0)
        for weight, sums in zip(weights, of_pairs, strict=True):
            wanted += weight * share * sums.counts[0, :, k] / (sums.masses[0, k] + PAIR_DOUBT)
    wanted[[A, B]] += candidates.OWN_SHARE
    order = [item for item in np.argsort(-wanted).tolist() if known.is_seen[item]]
    [best] = chosen(found, [[B, A]], len(order))
    assert wanted[best] == pytest.approx(wanted[order], rel=1e-5)
