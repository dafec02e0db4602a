"""Category memory: next clicks by value and by value and last item, against loops."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dayahead.memory.categories import CategoryMemory
from dayahead.memory.growth import Growth
from support.clicks import clicks, random_clicks, seeds, sessions_of
from support.memory_models import CONFIG, SETTINGS, after, counted

A, B, C = 2, 3, 4
[HALF_LIFE] = CONFIG.category_half_lives
COLUMNS = ("device", "os")
EVERY = np.arange(2, 14, dtype=np.int32)[None]


def memory_of(*windows):
    columns = COLUMNS[: windows[0].categories.shape[1]]
    return after(CategoryMemory(replace(SETTINGS, columns=columns)), *windows)


def test_a_click_counts_under_the_value_of_the_click_before():
    memory = memory_of(clicks([[A, B, C]], categories=[[(7,), (8,), (9,)]]))
    prefix = clicks([[A], [A], [B]], categories=[[(7,)], [(8,)], [(8,)]])
    sums = counted(memory, prefix, EVERY[:, :3].repeat(3, axis=0), 20)
    of_clicks, of_transitions = sums.counts[..., 0].tolist(), sums.counts[..., 1].tolist()
    assert of_clicks == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert of_transitions == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert sums.masses.tolist() == [[1, 1], [1, 0], [1, 1]]


def test_no_columns_give_no_evidence():
    memory = CategoryMemory(replace(SETTINGS, columns=()))
    memory.add(Growth.whole(clicks([[A, B]], categories=[[(), ()]])), np.zeros(2), 1.0)
    sums = counted(memory, clicks([[A]], categories=[[()]]), EVERY, 20)
    assert (sums.counts.shape, sums.masses.shape) == ((1, 12, 0), (1, 0))


@settings(max_examples=15)
@given(seeds)
def test_both_tables_agree_with_loops(seed):
    windows = [random_clicks(seed + i, n_sessions=20, start=i, n_columns=2) for i in range(2)]
    dice = np.random.default_rng(seed)
    last, values = int(dice.integers(2, 14)), dice.integers(0, 3, 2).tolist()
    wanted = np.zeros((12, 4))
    for session in [session for window in windows for session in sessions_of(window)]:
        for (a, _, before), (b, hour, _) in itertools.pairwise(session):
            worth = 0.5 ** ((2 - hour) / HALF_LIFE)
            if min(a, b) >= 2:
                for g in range(2):
                    wanted[b - 2, g] += worth * (before[g] == values[g])
                    wanted[b - 2, 2 + g] += worth * (before[g] == values[g] and a == last)
    prefix = clicks([[last]], categories=[[tuple(values)]])
    sums = counted(memory_of(*windows), prefix, EVERY, 14)
    assert sums.counts[0] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert sums.masses[0] == pytest.approx(wanted.sum(0), rel=1e-5, abs=1e-6)
