"""Metrics of lists: by hand, by their definitions, and beside RecTools."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.metric_names import OF_LISTS
from dayahead.metrics.lists import (
    DIVERSITY_OF_VECTORS,
    OF_CLICKS,
    RANGES,
    KnownItems,
    Shown,
    click_figures,
    figure_names,
    gini,
    list_figures,
    novelty,
    popularity,
    repeats,
)
from support.list_oracle import N_ITEMS, Lists, cut, oracle, some_lists

ROOT = Path(__file__).parents[3]
PEER = ROOT / "build" / "peers" / "rectools" / "bin" / "python"
PYTHON = sys.executable if find_spec("rectools") else str(PEER)


def shown(*rows, items=(2, 3, 4), own=(0, 0), n_lists=4):
    return Shown(n_lists, np.array(items), np.array(rows), np.array(own))


def test_hand_computed_gini():
    """Of four items one is in all lists; or all are in as many; or 1, 2 and 3 of 6, and none."""
    assert gini(np.array([7]), 4) == 3 / 4
    assert gini(np.array([2, 2, 2, 2]), 4) == 0
    assert gini(np.array([3, 1, 2]), 4) == pytest.approx((-1 + 2 + 9) / (4 * 6))


def test_hand_computed_novelty_and_popularity():
    """Of 8 sessions 4 have the first item, 1 the second, none the third, which counts as 1."""
    counts, sessions = np.array([2, 1, 1]), np.array([4, 1, 0])
    assert novelty(counts, sessions, 8) == (2 * 1 + 3 + 3) / 4
    assert popularity(counts, sessions, 10) == pytest.approx((2 * 0.4 + 0.1) / 4)


@pytest.mark.filterwarnings("error")
def test_without_earlier_sessions_all_figures_are_numbers():
    """The windows fitted so far may have no train session; a catalogue is known all the same."""
    known = KnownItems(0, np.zeros(5, np.int64), np.ones(5, bool))
    found = list_figures(shown([4, 0], [0, 3], [0, 1]), 2, known, 3)
    assert (found["novelty"], found["popularity"], found["new"]) == (0, 0, 1)


def test_hand_computed_repeats():
    """The window before shows item 2 first and item 4 second; this one 2 three times, 3 once."""
    before = shown([4, 0], [0, 4], items=(2, 4))
    now = shown([3, 0], [1, 0], [0, 4])
    assert repeats(now, before, 1) == 3 / 4
    assert repeats(now, before, 2) == 7 / 8
    assert repeats(now, before, 9) == 7 / 8


@pytest.mark.long
@given(some_lists(), st.integers(1, 8), st.integers(1, 4))
def test_every_metric_equals_its_definition_for_any_batches(lists, k, batch_size):
    found = list_figures(lists.counted(batch_size), k, lists.known, lists.n_items)
    tolerance = 1e-12 if lists.vectors is None else 1e-9  # sums of cosines are rounded
    assert found == pytest.approx(oracle(lists, k), abs=tolerance)
    ranges = RANGES if lists.vectors is None else RANGES | {"diversity": DIVERSITY_OF_VECTORS}
    assert all(ranges[name][0] <= value <= ranges[name][1] for name, value in found.items())
    assert {*found, "popularity_ratio", "repeats"} == {*OF_LISTS} == {*RANGES}


@pytest.mark.long
@given(some_lists())
def test_what_users_click_is_a_list_of_one_item(lists):
    clicked = replace(lists, shown=cut(lists, 1))
    expected = oracle(lists, 1)
    found = click_figures(clicked.counted(), lists.known)
    assert found == pytest.approx({name: expected[name] for name in OF_CLICKS}, abs=1e-12)


@pytest.mark.long
@given(some_lists())
def test_equal_windows_repeat_all_and_disjoint_ones_nothing(lists):
    counted = lists.counted()
    assert repeats(counted, counted, 3) == 1
    assert repeats(counted, replace(counted, items=counted.items + N_ITEMS), 3) == 0


def test_no_attribute_gives_no_diversity():
    known = Lists([[2]], [[3]], [[2, 3]], 1, {}, {2}).known
    assert list_figures(shown([4, 0], items=(2,)), 1, known, 3)["diversity"] is None


def test_hand_computed_diversity_of_vectors():
    """Pairs with the cosines 1, 0 and 0; then 0.6, and 0 with the item without a vector."""
    vectors = {2: [2.0, 0, 0], 3: [0.5, 0, 0], 4: [0, 0, 3.0], 5: [3.0, 4.0, 0]}
    lists = Lists([[2, 3, 4], [2, 5, 6]], [[2]] * 2, [[2]], 1, {}, {2}, vectors)
    found = [list_figures(lists.counted(), k, lists.known, 5)["diversity"] for k in (1, 2, 3, 9)]
    of_three = 1 - (1 + 0.6) / 6
    assert found == pytest.approx([0, 1 - (1 + 0.6) / 2, of_three, of_three], abs=1e-9)


def test_opposite_vectors_have_a_diversity_of_two():
    lists = Lists([[2, 3]], [[2]], [[2]], 1, {}, {2}, {2: [1.0, 2, 3], 3: [-1.0, -2, -3]})
    assert list_figures(lists.counted(), 2, lists.known, 3)["diversity"] == pytest.approx(2)


@pytest.mark.long
@given(some_lists(), st.floats(1e-3, 1e3))
def test_the_length_of_vectors_has_no_effect(lists, factor):
    one = replace(lists, vectors={item: [1.0, item % 3, item % 5] for item in range(2, N_ITEMS)})
    longer = {item: [factor * x for x in each] for item, each in one.vectors.items()}
    found = [
        list_figures(each.counted(), 5, each.known, each.n_items)["diversity"]
        for each in (one, replace(one, vectors=longer))
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-6)  # float32 vectors


def test_names_have_the_cutoffs_that_the_lists_reach():
    names = figure_names((20, 10, 50, 10), 20)
    assert names[:3] == ["coverage_at_10", "coverage_at_20", "gini_at_10"]
    assert names[-4:] == ["clicked_novelty", "clicked_popularity", "clicked_new", "clicked_own"]
    assert len(names) == 2 * len(OF_LISTS) + 4


def random_lists(seed):
    """Twenty lists of five items; each has an attribute, as RecTools needs it, or a vector."""
    draw = random.Random(seed)
    items = range(2, N_ITEMS)
    shown = [draw.sample(items, 5) for _ in range(20)]
    history = [draw.choices(items[:-2], k=draw.randint(1, 4)) for _ in range(30)]
    attribute = {item: draw.randint(2, 4) for item in items}
    vectors = {item: [draw.gauss(0, 1) for _ in range(3)] for item in items} if seed % 2 else None
    return Lists(shown, [[2]] * 20, history, 9, attribute, {*items}, vectors)


def test_figures_equal_those_of_rectools():
    """Beside it, in its environment: `make bench-peers` sets it up."""
    if find_spec("rectools") is None and not PEER.exists():
        pytest.skip("RecTools is not installed; make build/peers/rectools/.ready installs it")
    cases = [(random_lists(seed), k) for seed in range(5) for k in (1, 3, 5, 9)]
    given = [
        {
            "k": k,
            "shown": lists.shown,
            "history": lists.history,
            "attribute": lists.attribute,
            "vectors": lists.vectors
            and {i: np.float32(v).tolist() for i, v in lists.vectors.items()},
            "catalogue": sorted(lists.candidates),
        }
        for lists, k in cases
    ]
    script = ROOT / "tests" / "support" / "rectools_lists.py"
    done = subprocess.run(
        [PYTHON, str(script)], input=json.dumps(given), capture_output=True, text=True,
        check=True, env=dict(os.environ),
    )  # fmt: skip
    for (lists, k), theirs in zip(cases, json.loads(done.stdout), strict=True):
        found = list_figures(lists.counted(), k, lists.known, lists.n_items)
        assert {name: found[name] for name in theirs} == pytest.approx(theirs, rel=1e-9, abs=1e-9)
