"""Session neighbours: similarity and worth by hand, the search against loops, what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Moment
from dayahead.memory.neighbours import SessionMemory
from dayahead.memory.selection import highest, kth_lowest
from support.clicks import HOUR, clicks, random_clicks, seeds, sessions_of
from support.memory_models import CONFIG, SETTINGS, counted

A, B, C, D = range(2, 6)
HALF_LIVES = CONFIG.neighbour_half_lives


def memory_of(*windows, **settings):
    memory = SessionMemory(replace(SETTINGS, config=replace(CONFIG, **settings)))
    memory.grow(12)
    for sessions in windows:
        memory.add(Growth.whole(sessions.take(sessions.order())), None, None)
    return memory


def values(memory, prefix, end=1.0, half_life=4.0):
    """{item: [value, sharp value]} of the neighbours of a prefix, at an hour."""
    found = memory.search(clicks([prefix]), int(end * HOUR))
    names = (f"neighbours.{kind}.{half_life:g}" for kind in ("items", "sharp"))
    channels = [memory.names.index(name) for name in names]
    return dict(zip(found.columns.tolist(), found.values[:, channels].tolist(), strict=True))


def test_an_item_is_worth_similarity_over_distance_and_half_of_it_backwards():
    memory = memory_of(clicks([[A, B, C, D]]))
    assert values(memory, [B])[C][0] == pytest.approx(1 / 2)  # 1 / sqrt(4)
    assert values(memory, [B])[D][0] == pytest.approx(1 / 4)
    assert values(memory, [B])[A][0] == pytest.approx(1 / 4)
    assert B not in values(memory, [B])


def test_shared_items_add_up_and_earlier_ones_weigh_less():
    memory = memory_of(clicks([[A, B, C, D]]))
    assert values(memory, [A, B])[C][0] == pytest.approx((1 + CONFIG.fade) / 2)
    assert values(memory, [B, A, A])[B][0] == pytest.approx((1 + CONFIG.fade**2) / 2)


@pytest.mark.parametrize("half_life", HALF_LIVES)
def test_a_session_fades_with_its_age(half_life):
    memory = memory_of(clicks([[A, B, C, D]]))
    found = values(memory, [B], end=1 + 2 * half_life, half_life=half_life)
    assert found[C][0] == pytest.approx(1 / 2 * 2**-2)


def test_the_sharp_value_is_that_of_the_most_similar_session():
    memory = memory_of(clicks([[A, B, C, D], [B, D, 7, 8]]))
    found = values(memory, [A, B])
    assert found[C][1] == pytest.approx(found[C][0])
    assert found[7][1] == pytest.approx(found[7][0] / 1.7**2)


def test_only_the_latest_sessions_of_an_item_are_searched():
    memory = memory_of(clicks([[A, B], [A, C], [A, D]], times=[[0, 1], [0, 2], [0, 3]]), n_latest=2)
    assert sorted(values(memory, [A])) == [C, D]


def test_what_no_search_reaches_is_forgotten():
    memory = memory_of(clicks([[A, B], [B, A], [A, B]]), clicks([[A, A]]), n_latest=2, n_earlier=2)
    assert len(memory.times) == 3  # B still finds two of the first window


def test_a_session_is_kept_while_one_of_its_items_finds_it():
    memory = memory_of(clicks([[A, 7], [A, B], [A, C]], times=[[0, 1], [0, 2], [0, 3]]), n_latest=1)
    assert sorted(values(memory, [7])) == [A]
    assert len(memory.times) == 3


def test_sessions_beyond_the_limit_are_forgotten():
    memory = memory_of(clicks([[A, B]]), clicks([[C, D]]), clicks([[B, C]]), max_sessions=2)
    assert len(memory.times) == 2
    assert values(memory, [A]) == {}


def test_sessions_too_old_to_weigh_anything_are_no_neighbours():
    """2^(-age / 64) is 0 in float32 after 10,000 windows."""
    memory = memory_of(clicks([[A, B], [A, C]]))
    assert len(values(memory, [A])) == 2
    assert values(memory, [A], end=10_000) == {}


@pytest.mark.parametrize("fade", [0.0, 1e-6])
def test_items_that_weigh_nothing_are_not_compared(fade):
    memory = memory_of(clicks([[A, B, C, D]] * 200), fade=fade, n_earlier=300)
    found = values(memory, [D, C, B, A, D, C, B, A, D, C, B, A, 11])
    assert set(found) <= {A, B, C, D}


def test_earlier_items_may_reach_farther_than_the_last_one():
    memory = memory_of(clicks([[A, C], [A, D], [B, C]]), n_latest=1, n_earlier=2)
    assert sorted(values(memory, [A, 7])) == [C, D]


def test_an_unknown_item_finds_nothing():
    assert values(memory_of(clicks([[A, 1, B]])), [0]) == {}


def test_values_are_read_at_the_candidates():
    memory = memory_of(clicks([[A, B, C, D]]))
    candidates = np.array([[D, 0, C], [D, 0, C]], np.int32)
    sums = counted(memory, clicks([[B], [7]]), candidates, 14, Moment(HOUR))
    assert sums.counts[..., 0] == pytest.approx(np.array([[1 / 4, 0, 1 / 2], [0, 0, 0]]))
    assert sums.masses[:, 0] == pytest.approx([1, 0])


def expected(windows, prefix, end, s, half_life):
    """Values by the definition: all sessions scored one by one, the best added up."""
    sessions = [x for w in windows for x in sessions_of(w.take(w.order()))]
    shares = {item: s.fade**k for k, item in reversed(list(enumerate(prefix[::-1])))}
    scored = []
    for session in sessions:
        items = [item for item, *_ in session]
        shared = [item for item in prefix[::-1] if item in items]
        if shared:
            similarity = sum(shares[item] for item in set(shared))
            age = max(end - session[-1][1], 0)
            scores = {h: similarity * 0.5 ** (age / h) / len(items) ** 0.5 for h in HALF_LIVES}
            scored.append((sum(scores.values()), scores[half_life], items, shared[0]))
    best = sorted(scored, key=lambda each: -each[0])[: s.n_best]
    sums = {}
    for _, score, items, shared in best:
        at = len(items) - 1 - items[::-1].index(shared)
        for i, item in enumerate(items):
            if i != at and item >= 2:
                worth = score / (i - at) if i > at else score * s.backward / (at - i)
                sums[item] = sums.get(item, 0) + worth
    return sums


@settings(max_examples=15)
@given(seeds, st.sampled_from(HALF_LIVES))
def test_the_search_agrees_with_loops(seed, half_life):
    windows = [random_clicks(seed + i, n_sessions=25, start=i) for i in range(2)]
    prefix = np.random.default_rng(seed).integers(2, 14, 3).tolist()
    memory = memory_of(*windows, n_best=10)
    found = values(memory, prefix, 2.0, half_life)
    wanted = expected(windows, prefix, 2.0, memory.config, half_life)
    assert {item: value for item, (value, _) in found.items()} == pytest.approx(wanted, rel=1e-5)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_the_kth_lowest_and_the_k_highest_are_those_of_a_sort(seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, generator.integers(1, 40), generator.integers(1, 60))
    k = int(generator.integers(len(values)))
    assert kth_lowest(values.astype(np.float32), k) == np.sort(values)[k]
    wanted = np.argsort(-values, kind="stable")[: k + 1]
    assert highest(values.astype(np.float32), k + 1).tolist() == wanted.tolist()
