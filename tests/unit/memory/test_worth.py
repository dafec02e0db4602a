"""What clicks count: every memory by hand or against integers, in ticks too, and in the head."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dayahead.memory.categories import CategoryMemory
from dayahead.memory.gradients import gradients_in_parts
from dayahead.memory.growth import Growth
from dayahead.memory.items import ItemMemory
from dayahead.memory.memories import Memories
from dayahead.memory.neighbours import SessionMemory
from dayahead.memory.pairs import PairMemory
from dayahead.memory.past import PastMemory
from dayahead.memory.running import RunningSessions
from support.clicks import HOUR, clicks, random_clicks, seeds, with_pasts
from support.memory_models import SETTINGS, SIZES, channel_of, counted, equal_states, fitted

A, B, C, D = range(2, 6)
WEIGHTED = replace(SETTINGS, has_weights=True, with_past=True)
EVERY = np.arange(2, 14, dtype=np.int32)[None]


def worth(sessions, values):
    return replace(sessions, worth=np.array(values, float))


def added(kind, sessions, **more):
    memory = kind(replace(WEIGHTED, **more))
    memory.grow(12)
    memory.add(Growth.whole(sessions), np.zeros(len(sessions.items)), 1.0)
    return memory


def test_a_pair_counts_the_worth_of_the_item_that_it_leads_to():
    memory = added(PairMemory, worth(clicks([[A, B, C]]), [1, 3, 10]))

    def count(first, second, kind):
        found = counted(memory, clicks([[first]]), np.array([[second]], np.int32), 20)
        return found.counts[0, 0, channel_of(memory.channels, kind, 4.0)]

    assert [count(A, B, "next"), count(B, C, "next"), count(A, B, "first")] == [3, 10, 3]
    assert [count(B, C, "end"), count(A, C, "forward"), count(C, A, "backward")] == [10, 5, 0.5]
    assert count(C, B, "backward") == 3


def test_items_categories_and_pasts_count_what_clicks_are_worth():
    sessions = worth(clicks([[A, B], [B]], categories=[[(7,), (8,)], [(7,)]]), [2, 3, 0.5])
    items = added(ItemMemory, sessions)
    kinds = [("clicks", 2.0), ("later", 1.0), ("end", 4.0)]
    channels = [channel_of(items.channels, *kind) for kind in kinds]
    assert items.counts[[A, B]][:, channels].tolist() == [[2, 0, 0], [3.5, 3, 3.5]]
    under = counted(added(CategoryMemory, sessions), clicks([[A]], categories=[[(7,)]]), EVERY, 20)
    assert under.counts[0, 1].tolist() == [3, 3]
    past = replace(sessions, past=clicks([[D], [D, C]]))
    prefix = replace(clicks([[A], [A]]), past=clicks([[D], [C]]))
    found = counted(added(PastMemory, past), prefix, EVERY.repeat(2, axis=0), 20).counts
    assert (found[0, :2, 0].tolist(), found[1, :2, 0].tolist()) == ([2, 1.5], [0, 0.5])


def test_the_items_of_neighbours_count_what_their_clicks_were_worth():
    rows = clicks([[A, B, C], [A, C]])
    plain = added(SessionMemory, worth(rows, [1] * 5))
    weighted = added(SessionMemory, worth(rows, [1, 4, 1, 1, 7]))
    one, other = (counted(each, clicks([[A]]), EVERY, 20).counts[0] for each in (plain, weighted))
    of_c = counted(added(SessionMemory, clicks([[A, C]])), clicks([[A]]), EVERY, 20).counts[0, 2]
    assert other[1] == pytest.approx(4 * one[1])
    assert other[2, 0] == pytest.approx(one[2, 0] + 6 * of_c[0])


def test_the_worth_of_neighbours_is_part_of_the_state():
    memory = added(SessionMemory, worth(clicks([[A, B, C], [A, C]]), [1, 4, 1, 1, 7]))
    restored = SessionMemory(WEIGHTED)
    restored.load_state_dict(memory.state_dict())
    restored.grow(12)
    one, other = (counted(each, clicks([[A]]), EVERY, 20).counts for each in (memory, restored))
    assert np.array_equal(one, other)
    assert "worth" not in SessionMemory(SETTINGS).state_dict()


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_a_worth_of_1_is_none(seed):
    sessions = with_pasts(random_clicks(seed), seed)
    found = [Memories(replace(SETTINGS, with_past=True)) for _ in range(2)]
    for memories, given_worth in zip(found, (None, np.ones(len(sessions.items))), strict=True):
        memories.grow(SIZES)
        memories.add([replace(sessions, worth=given_worth)], HOUR)
    one, other = (each.state_dict() for each in found)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_counts_are_linear_in_what_clicks_are_worth(seed):
    """Memories of the sum of two worths are the sums of the memories of each."""
    dice, sessions = np.random.default_rng(seed), random_clicks(seed)
    parts = dice.integers(0, 9, (2, len(sessions.items))).astype(float)
    for kind in (PairMemory, CategoryMemory):
        one, two, both = (
            counted(
                added(kind, worth(sessions, values)),
                sessions.take(np.arange(5)),
                EVERY.repeat(5, axis=0),
                20,
            )
            for values in (*parts, parts.sum(0))
        )
        assert both.counts == pytest.approx(one.counts + two.counts, rel=1e-5)
        assert both.masses == pytest.approx(one.masses + two.masses, rel=1e-5)


def test_running_sessions_keep_what_their_clicks_are_worth():
    minute = HOUR // 60
    live = replace(SETTINGS, tick=10 * minute, gap=30 * minute, min_length=1, has_weights=True)
    found = RunningSessions(live)
    found.deliver(worth(clicks([[A, B], [C]], times=[(0.02, 0.3), (0.1,)]), [2, 3, 4]))
    assert found.advance(10 * minute).sessions.worth.tolist() == [2, 4]
    restored = RunningSessions(live)
    restored.load_state_dict(found.state_dict())
    for each in (found, restored):
        assert each.advance(30 * minute).sessions.worth.tolist() == [2, 3]


def test_the_head_learns_from_clicks_of_the_predicted_types_alone():
    sessions = clicks([[A, B, C], [A, B], [C]])
    flags = np.array([True, False, True, False, True, True])
    outline = replace(sessions, is_target=flags).outline()
    chosen = outline.drawn(np.arange(3), 9, torch.Generator().manual_seed(0))
    assert sessions.following(chosen).tolist() == [C, B]
    assert [*zip(*chosen, strict=True)] == [(0, 1), (1, 1)]


def test_the_weight_of_an_example_is_the_worth_of_its_target():
    sessions = random_clicks(0)
    values = np.random.default_rng(0).integers(1, 4, len(sessions.items)).astype(float)
    model = fitted((worth(sessions, values), HOUR), has_weights=True)
    assert {*model.replay.kept.weights.tolist()} <= {1.0, 2.0, 3.0}
    assert len({*model.replay.kept.weights.tolist()}) > 1
    other = fitted((worth(sessions, values), HOUR), has_weights=True)
    assert equal_states(model, other)
    assert not equal_states(model, fitted((sessions, HOUR), has_weights=True))


def test_the_loss_of_the_head_is_a_weighted_mean():
    """A weight of 2 is the example twice; a weight of 0 is none."""
    window = random_clicks(0), HOUR
    kept = fitted(window).replay.kept.single()
    weighted = replace(kept.take(slice(3)), weights=torch.tensor([2.0, 1, 0]))
    with gradients_in_parts(fitted(window).head) as loss_of:
        expected = loss_of(kept, torch.tensor([0, 0, 1]))
        assert loss_of(weighted, torch.arange(3)) == pytest.approx(expected, rel=1e-5)
        assert loss_of(kept, torch.arange(3)) != pytest.approx(expected, rel=1e-5)
