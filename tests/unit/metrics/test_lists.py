"""Metrics of lists: by hand, by their definitions, and beside RecTools."""

import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.metric_names import OF_LISTS
from dayahead.metrics.lists import (
    RANGES,
    KnownItems,
    Shown,
    figure_names,
    gini,
    list_figures,
    novelty,
    popularity,
)
from support.list_oracle import N_ITEMS, Lists, oracle, some_lists

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


@pytest.mark.long
@given(some_lists(), st.integers(1, 8), st.integers(1, 4))
def test_every_metric_equals_its_definition_for_any_batches(lists, k, batch_size):
    found = list_figures(lists.counted(batch_size), k, lists.known, lists.n_items)
    assert found == pytest.approx(oracle(lists, k), abs=1e-12)
    assert all(RANGES[name][0] <= value <= RANGES[name][1] for name, value in found.items())
    assert {*found} == {*OF_LISTS} == {*RANGES}


def test_names_have_the_cutoffs_that_the_lists_reach():
    names = figure_names((20, 10, 50, 10), 20)
    assert names[:3] == ["coverage_at_10", "coverage_at_20", "gini_at_10"]
    assert len(names) == 2 * len(OF_LISTS)


def random_lists(seed):
    """Twenty lists of five items."""
    draw = random.Random(seed)
    items = range(2, N_ITEMS)
    shown = [draw.sample(items, 5) for _ in range(20)]
    history = [draw.choices(items[:-2], k=draw.randint(1, 4)) for _ in range(30)]
    return Lists(shown, [[2]] * 20, history, 9, {*items})


def test_figures_equal_those_of_rectools():
    """Beside it, in its environment: `make build/peers/rectools/.ready` sets it up."""
    if find_spec("rectools") is None and not PEER.exists():
        pytest.skip("RecTools is not installed; make build/peers/rectools/.ready installs it")
    cases = [(random_lists(seed), k) for seed in range(5) for k in (1, 3, 5, 9)]
    given = [
        {
            "k": k,
            "shown": lists.shown,
            "history": lists.history,
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
