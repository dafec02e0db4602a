"""The average over days, computed by hand, and its interval."""

import numpy as np
import pytest

from dayahead.aggregate.averaging import average, bootstrap_interval
from support.results_folders import result_of


def averaged(*ranks, cutoffs=(1,)):
    arrays = [np.array(window) for window in ranks]
    names = [f"2019-10-0{day}" for day in range(1, len(ranks) + 1)]
    rows = [result_of(name, window, cutoffs) for name, window in zip(names, arrays, strict=True)]
    return average(rows, arrays, cutoffs)


def test_the_average_over_days_weights_windows_equally():
    # Windows of 1, 2 and 5 sessions with recall 1, 1/2 and 0.
    summary = averaged([1], [1, 9], [9, 9, 9, 9, 0])
    assert summary.aod["recall_at_1"] == 0.5
    assert summary.session_mean["recall_at_1"] == 2 / 8
    assert (summary.n_windows, summary.n_sessions) == (3, 8)


def test_no_interval_for_fewer_than_five_windows():
    assert averaged([1], [1], [9], [9]).ci95["recall_at_1"] is None
    assert averaged([1], [1], [9], [9], [9]).ci95["recall_at_1"] is not None


def test_interval_is_reproducible_and_contains_the_mean():
    values = [0.31, 0.35, 0.28, 0.40, 0.33, 0.30]
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(values) == (low, high)
    assert min(values) < low < np.mean(values) < high < max(values)


def test_interval_of_equal_windows_is_a_point():
    assert bootstrap_interval([0.5] * 6) == (0.5, 0.5)


def test_interval_of_many_windows_is_close_to_the_normal_one():
    values = np.random.default_rng(3).normal(0.3, 0.05, 400)
    half = 1.96 * values.std() / np.sqrt(400)
    assert bootstrap_interval(values) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=4e-4
    )
