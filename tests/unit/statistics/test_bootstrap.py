"""Intervals over sessions, against those of the textbook."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.statistics.bootstrap import MOST_UNITS, percentiles, replicates


@given(st.lists(st.integers(1, 9), min_size=2, max_size=30), st.floats(-5, 5), st.integers(0, 9))
@settings(max_examples=20)
def test_a_metric_that_is_the_same_everywhere_has_no_width(counts, value, seed):
    counts = np.array(counts, float)
    low, high = percentiles(replicates(value * counts, counts, seed))
    assert (low, high) == (pytest.approx(value), pytest.approx(value))


@pytest.mark.parametrize("n", [400, MOST_UNITS * 3 + 7])
def test_one_click_a_session_gives_the_interval_of_a_share(n):
    hits = (np.arange(n) % 4 == 0).astype(float)
    np.random.default_rng(5).shuffle(hits)
    low, high = percentiles(replicates(hits, np.ones(n), 1))
    half = 1.96 * np.sqrt(hits.mean() * (1 - hits.mean()) / n)
    assert (low + high) / 2 == pytest.approx(hits.mean(), abs=half / 5)
    assert (high - low) / 2 == pytest.approx(half, rel=0.12)


def test_clicks_of_a_session_that_vary_together_widen_it():
    draw = np.random.default_rng(2)
    is_good = draw.random(300) < 0.5
    together = percentiles(replicates(is_good * 5.0, np.full(300, 5.0), 1))
    alone = percentiles(replicates(draw.binomial(5, 0.5, 300) * 1.0, np.full(300, 5.0), 1))
    # Five clicks that are alike tell as much as one.
    assert (together[1] - together[0]) / (alone[1] - alone[0]) == pytest.approx(5**0.5, rel=0.15)


@pytest.mark.long
def test_nine_of_ten_intervals_hold_the_truth_and_more():
    held = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        counts = draw.geometric(0.3, 150).astype(float)
        chance = draw.beta(2, 4, 150)  # of a session
        sums = draw.binomial(counts.astype(int), chance).astype(float)
        low, high = percentiles(replicates(sums, counts, seed))
        held += low <= 1 / 3 <= high
    assert 180 <= held <= 198
