"""Attribute memory: an item's newest values, compared with those of the prefix."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dayahead.memory.attributes import AttributeMemory
from dayahead.memory.evidence import CandidateBatch
from dayahead.memory.growth import Growth
from support.clicks import clicks, random_clicks, seeds, sessions_of
from support.memory_models import SETTINGS

A, B, C = 2, 3, 4
RED, BLUE, BRAND = 5, 6, 7


def memory_of(*windows, attributes=("color",), columns=("device", "color"), n_items=12):
    memory = AttributeMemory(replace(SETTINGS, columns=columns, attributes=attributes))
    memory.grow(n_items)
    for sessions in windows:
        memory.add(Growth.whole(sessions), np.zeros(len(sessions.items)), 1.0)
    return memory


def matches(memory, prefixes, candidates):
    nothing = np.zeros((1, 1, 1), np.float32)
    batch = CandidateBatch(prefixes, np.array(candidates, np.int32), nothing, nothing)
    return memory.features(batch)


def test_the_value_of_the_latest_click_stays_and_one_not_given_changes_nothing():
    first = clicks(
        [[A, B], [A]], times=[[1, 3], [2]], categories=[[(9, RED), (9, RED)], [(9, BLUE)]]
    )
    later = clicks([[A, B]], times=[[4, 5]], categories=[[(9, 1), (9, BLUE)]])  # 1: unknown
    assert memory_of(first).values[[A, B, C]].tolist() == [[BLUE], [RED], [0]]
    assert memory_of(first, later).values[[A, B, C]].tolist() == [[BLUE], [BLUE], [0]]


def test_matches_with_the_last_click_and_with_all_by_their_place():
    memory = memory_of(clicks([[A, B, C]], categories=[[(9, RED), (9, BLUE), (9, RED)]]))
    prefix = clicks([[A, B, B], [C]], categories=[[(9, RED), (9, BLUE), (9, RED)], [(9, 1)]])
    found = matches(memory, prefix, [[A, B, 5], [A, B, 0]])
    red = (1 + 1 / 3) / (1 + 1 / 2 + 1 / 3)
    assert found[0] == pytest.approx(np.array([[1, red], [0, 1 - red], [0, 0]]))
    assert not found[1].any()  # the prefix's only value is unknown


def test_each_attribute_has_two_features_and_other_columns_none():
    both = memory_of(columns=("brand", "device", "color"), attributes=("color", "brand"))
    assert both.names == tuple(
        f"attribute.{name}.{kind}" for name in ("color", "brand") for kind in ("last", "share")
    )
    assert both.columns == [2, 0]


@settings(max_examples=20)
@given(seeds)
def test_matches_agree_with_loops(seed):
    window, prefixes = (random_clicks(seed + n, n_sessions=15, n_columns=2) for n in (0, 1))
    for each in (window, prefixes):
        each.categories[:] += 1  # 1 is unknown
    newest = {}
    for item, _, values in sorted(
        (click for session in sessions_of(window) for click in session), key=lambda each: each[1]
    ):
        if item >= 2 and values[1] >= 2:
            newest[item] = values[1]
    candidates = np.arange(2, 14).repeat(len(prefixes)).reshape(12, -1).T
    wanted = np.zeros((*candidates.shape, 2))
    for row, session in enumerate(sessions_of(prefixes)):
        latest = [(1 / (n + 1), v[1]) for n, (_, _, v) in enumerate(session[::-1]) if v[1] >= 2]
        for column, item in enumerate(candidates[row].tolist()):
            shared = sum(weight for weight, value in latest if value == newest.get(item))
            total = sum(weight for weight, _ in latest)
            is_last = session[-1][2][1] == newest.get(item)
            wanted[row, column] = is_last, shared / total if total else 0
    assert matches(memory_of(window), prefixes, candidates) == pytest.approx(wanted, abs=1e-6)
