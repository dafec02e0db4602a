"""Item memory: counts by kind and half-life, first and latest times, popularity."""

import numpy as np
import pytest
from hypothesis import given, settings

from dayahead.memory.items import NEVER, ItemMemory
from dayahead.memory.lookup import Moment
from support.clicks import HOUR, clicks, random_clicks, seeds, sessions_of
from support.memory_models import SETTINGS, after

A, B, C = 2, 3, 4
CHANNELS = ItemMemory(SETTINGS).channels


def memory_of(*windows, n_items=12):
    memory = ItemMemory(SETTINGS)
    memory.grow(n_items)
    return after(memory, *windows)


def test_first_and_latest_times_are_kept_whatever_their_order():
    memory = memory_of(clicks([[A, B], [A]], times=[[0.4, 0.5], [0.2]]), clicks([[A]], [[1.1]]))
    hours = np.array([memory.first[[A, B]], memory.latest[[A, B]]]) / HOUR
    assert hours == pytest.approx(np.array([[0.2, 0.5], [1.1, 0.5]]))
    assert memory.first[C] == memory.latest[C] == NEVER


def test_reserved_items_are_never_seen():
    memory = memory_of(clicks([[0, 1, A]]))
    assert memory.is_seen.nonzero()[0].tolist() == [A]
    assert memory.counts[:2].sum() == 0


def test_popularity_is_a_share_that_no_item_lacks():
    memory = memory_of(clicks([[A, B, C], [A, B]]))
    popularity = memory.known(Moment(HOUR), HOUR, 12).popularity
    assert popularity.sum() == pytest.approx(1)
    assert popularity[B] > popularity[C] > popularity[A] > popularity[5] > 0


def test_popularity_is_a_mean_over_half_lives_in_which_few_clicks_weigh_less():
    memory = memory_of(clicks([[C, A]] * 40), clicks([]), clicks([[C, B]] * 10))
    popularity = memory.known(Moment(3 * HOUR), HOUR, 12).popularity
    wanted, weights = np.zeros(3), 0
    is_later = [channel.kind == "later" for channel in CHANNELS]
    for later in memory.counts.T[is_later]:
        # 0.05 of the mean over the half-lives of all clicks.
        firsts = memory.counts[:, [channel.kind == "clicks" for channel in CHANNELS]].mean(1)
        counts = later + 0.05 * firsts
        wanted += counts[[A, B, C]] / (counts.sum() + 20)
        weights += counts.sum() / (counts.sum() + 20)
    assert popularity[[A, B, C]] == pytest.approx(wanted / weights, rel=0.01)
    assert popularity[A] > popularity[B] > popularity[C]


def test_growing_keeps_the_counts():
    memory = memory_of(clicks([[A, B]]))
    before = memory.counts.copy()
    memory.grow(20)
    assert len(memory.counts) == len(memory.first) == len(memory.latest) == 22
    assert np.array_equal(memory.counts[: len(before)], before)


@settings(max_examples=15)
@given(seeds)
def test_all_channels_agree_with_loops(seed):
    windows = [random_clicks(seed + i, n_sessions=15, start=i) for i in range(3)]
    wanted = np.zeros((14, len(CHANNELS)))
    for session in [session for window in windows for session in sessions_of(window)]:
        for i, (item, hour, _) in enumerate(session):
            kinds = {"clicks": True, "later": i > 0, "end": i == len(session) - 1}
            for channel, (kind, (_, half_life)) in enumerate(CHANNELS):
                if item >= 2:
                    wanted[item, channel] += kinds[kind] * 0.5 ** ((3 - hour) / half_life)
    assert memory_of(*windows).counts == pytest.approx(wanted, rel=1e-5, abs=1e-6)
