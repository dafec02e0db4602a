"""Candidates: own items first, then the mixture; what is not wanted is never among them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.memory import candidates
from dayahead.memory.evidence import of
from dayahead.memory.growth import Growth
from dayahead.memory.memories import Memories
from dayahead.memory.neighbours import DOUBT, SHARE
from dayahead.memory.pairs import DOUBT as PAIR_DOUBT
from dayahead.memory.pairs import FADE, SHARES
from support.clicks import HOUR, clicks, random_clicks, seeds
from support.memory_models import CONFIG, SETTINGS, SIZES, counted

A, B, C, D, E, F = range(2, 8)


def memories(*windows, settings=SETTINGS, n_items=12):
    """Memories that have counted sessions of an hour each."""
    found = Memories(settings)
    found.grow(SIZES | {"item_id": n_items})
    for number, sessions in enumerate(windows, start=1):
        found.add([sessions], number * HOUR)
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


@given(seed=seeds, n_candidates=st.integers(1, 30))
def test_few_candidates_are_the_first_of_many(seed, n_candidates):
    found = memories(random_clicks(seed, n_items=90), n_items=90)
    prefixes = [[A, B], [C], [A, F, A], [50, 60, 70]]
    every = chosen(found, prefixes, 90)
    assert chosen(found, prefixes, n_candidates) == [row[:n_candidates] for row in every]


def test_what_was_counted_last_is_read_from_a_level_of_its_own():
    windows = random_clicks(3), random_clicks(4, n_sessions=2, start=1.0)
    live = memories(windows[0], settings=replace(SETTINGS, tick=HOUR))
    live.count(Growth.whole(windows[1]), 2 * HOUR)
    assert len(live.pairs.table.recent.rows)
    prefixes = [[A, B, C], [D], [E, A]]
    assert chosen(live, prefixes) == chosen(memories(*windows), prefixes)


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
    for k, (kind, _) in enumerate(pairs.channels):
        share = SHARES.get(kind, 0) / len(of(pairs.channels, kind))
        weights = (1, FADE if kind in {"forward", "backward"} else 0)
        for weight, sums in zip(weights, of_pairs, strict=True):
            wanted += weight * share * sums.counts[0, :, k] / (sums.masses[0, k] + PAIR_DOUBT)
    wanted[[A, B]] += candidates.OWN_SHARE
    order = [item for item in np.argsort(-wanted).tolist() if known.is_seen[item]]
    [best] = chosen(found, [[B, A]], len(order))
    assert wanted[best] == pytest.approx(wanted[order], rel=1e-5)
