"""Pair memory: each kind of channel by hand, all of them against loops."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dayahead.memory.growth import Growth
from dayahead.memory.pairs import FADE, REACH, PairMemory
from support.clicks import clicks, random_clicks, seeds, sessions_of
from support.memory_models import SETTINGS, after, channel_of, counted

A, B, C, D = range(2, 6)
EVERY = np.arange(2, 20, dtype=np.int32)
CHANNELS = PairMemory(SETTINGS).channels


def memory_of(*windows):
    return after(PairMemory(SETTINGS), *windows)


def counts(memory, prefix, item, *channel):
    sums = counted(memory, clicks([prefix]), np.array([[item]], np.int32), 20)
    return sums.counts[0, 0, channel_of(CHANNELS, *channel)]


def test_the_next_click_counts_once():
    memory = memory_of(clicks([[A, B, C]]))
    assert counts(memory, [A], B, "next", 4.0) == 1
    assert counts(memory, [A], C, "next", 4.0) == 0
    assert counts(memory, [B], A, "next", 4.0) == 0


def test_only_a_sessions_first_click_and_its_end_count_there():
    memory = memory_of(clicks([[A, B, C, D]]))
    first = [counts(memory, [x], y, "first", 1.0) for x, y in ((A, B), (B, C), (C, D))]
    end = [counts(memory, [x], y, "end", 1.0) for x, y in ((A, B), (B, C), (C, D))]
    assert (first, end) == ([1, 0, 0], [0, 0, 1])


def test_cooccurrence_is_worth_1_over_the_distance_in_either_direction():
    memory = memory_of(clicks([[A, B, C]]))
    assert counts(memory, [A], C, "forward", 4.0) == 0.5
    assert counts(memory, [C], A, "backward", 4.0) == 0.5
    assert counts(memory, [A], C, "backward", 4.0) == 0


def test_a_click_ages_to_the_windows_end_and_from_there_on():
    """Half an hour old, then an hour more: 2^-1.5 at a half-life of one hour."""
    memory = memory_of(clicks([[A, B]], times=[[0.25, 0.5]]), clicks([]))
    assert counts(memory, [A], B, "next", 1.0) == pytest.approx(2**-1.5)
    assert counts(memory, [A], B, "next", 0.25) == pytest.approx(2**-6)


def test_a_pair_is_pruned_after_91_windows():
    """16 log2(50) is 90.3."""
    memory = memory_of(clicks([[A, B]]), *[clicks([])] * 90)
    memory.compact()
    assert len(memory.table) == 2
    memory.add(Growth.whole(clicks([])), np.zeros(0), 1.0)
    memory.compact()
    assert len(memory.table) == 0


def test_the_pairs_held_are_the_most_frequent_ones():
    few = replace(SETTINGS, config=replace(SETTINGS.config, max_pairs=2))
    memory = PairMemory(few)
    sessions = clicks([[A, B], [C, D], [A, B]])
    memory.add(Growth.whole(sessions), np.zeros(len(sessions.items)), 1.0)
    assert len(memory.table) == 2
    assert counts(memory, [A], B, "next", 4.0) == 2


def test_unknown_items_are_in_no_pair():
    assert len(memory_of(clicks([[1, A, 0, 1]])).table) == 0


def test_what_is_met_is_summed_over_the_prefix_and_the_next_read_at_its_end():
    memory = memory_of(clicks([[A, C], [B, C]]))
    assert counts(memory, [A, B], C, "forward", 1.0) == 1 + FADE
    assert counts(memory, [A, B], C, "next", 1.0) == 1


def expected(windows, prefix, item):
    """Counts by the definition, in loops over every pair of clicks."""
    sums = np.zeros(len(CHANNELS))
    for end, window in enumerate(windows, start=1):
        for session in sessions_of(window):
            for i, (a, _, _) in enumerate(session):
                for j, (b, hour, _) in enumerate(session):
                    if i < j and min(a, b) >= 2:
                        age = max(end - hour, 0) + len(windows) - end
                        position = (i == 0, j == len(session) - 1)
                        sums += pair_worth((a, b), j - i, position, age, prefix, item)
    return sums


def pair_worth(pair, distance, position, age, prefix, item):
    (a, b), (is_first, is_end) = pair, position
    worth = np.zeros(len(CHANNELS))
    for channel, (kind, (_, half_life)) in enumerate(CHANNELS):
        decay = 0.5 ** (age / half_life)
        forward = sum(FADE**k for k, x in enumerate(prefix[::-1]) if (x, item) == (a, b))
        backward = sum(FADE**k for k, x in enumerate(prefix[::-1]) if (x, item) == (b, a))
        is_next = distance == 1 and (prefix[-1], item) == (a, b)
        worth[channel] = (
            decay
            * {
                "next": is_next,
                "first": is_next and is_first,
                "end": is_next and is_end,
                "forward": forward / distance,
                "backward": backward / distance,
            }[kind]
        )
    return worth


@pytest.mark.long
@settings(max_examples=3)
@given(seeds)
def test_all_channels_agree_with_loops(seed):
    windows = [random_clicks(seed + i, n_sessions=15, start=i) for i in range(3)]
    memory = memory_of(*windows)
    prefix = np.random.default_rng(seed).integers(2, 14, 3).tolist()
    sums = counted(memory, clicks([prefix]), EVERY[None], 20)
    wanted = np.array([expected(windows, prefix, item) for item in EVERY.tolist()])
    assert sums.counts[0] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert sums.masses[0] == pytest.approx(wanted.sum(0), rel=1e-5, abs=1e-6)


def test_clicks_out_of_reach_are_no_pair():
    memory = memory_of(clicks([[A, *range(6, 6 + REACH - 1), B, C]]))
    sums = counted(memory, clicks([[A]]), np.array([[B, C]], np.int32), 30)
    found = sums.counts[0, :, channel_of(CHANNELS, "forward", 1.0)]
    assert found == pytest.approx([1 / REACH, 0])
