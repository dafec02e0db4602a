"""The test of two settings: by hand and by simulation; a run beside a baseline."""

import numpy as np
import pytest

from dayahead.statistics.differences import compare_with_baseline, difference_test
from dayahead.statistics.intervals import half_width, over_runs, over_windows
from support.results_folders import result_of
from support.simulated_runs import autocorrelated, simulated_runs


def error_over_windows(values):
    """Of their mean: 5 windows have three cosines, whose mean square by 5 is its square."""
    found = over_windows(np.array(values))
    assert found.freedom == 3
    return float(found.value) ** 0.5


def test_windows_alone_by_hand():
    # The table gives t = 3.182 for 3 degrees of freedom. One run each: how much seeds differ is
    # not known.
    test = difference_test(np.zeros((1, 5)), np.array([[1.0, 2, 3, 4, 5]]))
    assert test.difference == 3
    half = 3.182 * error_over_windows([1.0, 2, 3, 4, 5])
    assert test.ci95 == pytest.approx((3 - half, 3 + half), abs=1e-3)
    assert test.p is None


def test_windows_and_runs_by_hand():
    # Runs: means -1, 1 and 2, 4 have the variance 2 each, by 2 runs each 1 + 1, with 2 degrees of
    # freedom: t is 4.303.
    a = np.array([[-1.0] * 5, [1.0] * 5])
    test = difference_test(a, a + np.arange(1.0, 6))
    assert test.difference == 3
    half = np.hypot(3.182 * error_over_windows(np.arange(1.0, 6)), 4.303 * 2**0.5)
    assert test.ci95 == pytest.approx((3 - half, 3 + half), abs=1e-2)
    assert 0.05 < test.p < 1


@pytest.mark.parametrize(("n_a", "n_b"), [(1, 1), (1, 2), (3, 1)])
def test_a_setting_with_one_run_has_no_p_value(n_a, n_b):
    """How much its runs differ is not known; the interval takes them to vary as the other's."""
    runs = simulated_runs(np.random.default_rng(1), 1, 4, 14, seed=0.5)[0]
    a, b = runs[:n_a], runs[n_a : n_a + n_b] + 100
    test = difference_test(a, b)
    assert test.p is None
    low, high = difference_test(a.mean(0)[None], b.mean(0)[None]).ci95  # over windows alone
    assert (test.ci95[0] < low and test.ci95[1] > high) == (n_a + n_b > 2)


def test_equal_differences():
    assert difference_test(np.ones((2, 5)), np.ones((2, 5))).p == 1
    assert difference_test(np.zeros((2, 5)), np.ones((2, 5))).p == 0
    few = difference_test(np.zeros((2, 4)), np.ones((2, 4)))
    assert (few.ci95, few.p) == (None, None)


def rejected(a, b, error):
    """Share of simulated comparisons, [times, runs, windows], that find a difference."""
    by_window = b.mean(axis=1) - a.mean(axis=1)
    half = half_width([over_windows(by_window), over_runs(a, b)], error / 2)
    found = np.abs(by_window.mean(axis=1)) > half
    for number in range(20):
        assert (difference_test(a[number], b[number]).p < error) == found[number]
    return float(found.mean())


def compared(n_times, n_runs, n_windows, *, seeds=(0.0, 0.0), rho=0.0, gain=0.0, differing=0.0):
    """Simulated runs of A and of B.

    `seeds` are the lasting deviations of A's and B's runs, `rho` is the autocorrelation of
    windows; B's advantage is `gain` on average and varies by window with the deviation
    `differing`.
    """
    random = np.random.default_rng([11, *n_runs, n_windows])
    a, b = (
        simulated_runs(random, n_times, n, n_windows, seed=seed, rho=rho)
        for n, seed in zip(n_runs, seeds, strict=True)
    )
    of_window = autocorrelated(random, (n_times, 1, n_windows), rho)
    return a, b + gain + differing * of_window


@pytest.mark.parametrize("n_runs", [(2, 2), (3, 3), (5, 2)])
@pytest.mark.parametrize(("seed", "rho"), [(0.25, 0.0), (1.0, 0.6), (4.0, 0.6)])
def test_equal_settings_are_rarely_found_to_differ(n_runs, seed, rho):
    runs = compared(2000, n_runs, 14, seeds=(seed, seed), rho=rho)
    assert rejected(*runs, 0.01) <= 0.015
    assert rejected(*runs, 0.05) <= 0.065


@pytest.mark.slow
@pytest.mark.parametrize("n_windows", [5, 14, 47])
@pytest.mark.parametrize("n_runs", [(2, 2), (3, 3), (5, 5), (5, 2)])
def test_a_level_of_1_percent_is_kept(n_runs, n_windows):
    """By equal settings, whatever the spread over seeds and the autocorrelation of windows."""
    for seed in (0.0, 0.25, 1.0, 4.0):
        for rho in (0.0, 0.3, 0.6):
            runs = compared(20_000, n_runs, n_windows, seeds=(seed, seed), rho=rho)
            assert rejected(*runs, 0.01) <= 0.012, (seed, rho)  # 2.8 standard errors


@pytest.mark.slow
@pytest.mark.parametrize("n_windows", [5, 14, 47])
@pytest.mark.parametrize("n_runs", [(2, 2), (3, 3), (5, 5)])
def test_the_level_where_settings_are_equal_on_average_alone(n_runs, n_windows):
    """They differ from window to window; or their seeds differ more, up to fourfold."""
    for rho, most in ((0.0, 0.012), (0.6, 0.02)):
        runs = compared(20_000, n_runs, n_windows, seeds=(0.25, 0.25), rho=rho, differing=1.0)
        assert rejected(*runs, 0.01) <= most, rho
    for seeds in ((0.0, 1.0), (0.5, 2.0)):
        runs = compared(20_000, n_runs, n_windows, seeds=seeds)
        assert rejected(*runs, 0.01) <= 0.027, seeds


POWER = {
    (2, 14): (0.02, 0.14, 0.38), (3, 14): (0.08, 0.64, 0.97), (5, 14): (0.29, 0.97, 1.0),
    (2, 47): (0.08, 0.36, 0.65), (3, 47): (0.38, 0.97, 1.0), (5, 47): (0.90, 1.0, 1.0),
}  # fmt: skip
"""Share of gains of 1, 2 and 3 times the window noise that are found at 1 %, by runs of each
setting and windows; seeds deviate by a quarter of the noise; docs/reproducibility.md."""


@pytest.mark.slow
@pytest.mark.parametrize(("n_runs", "n_windows"), POWER)
def test_power(n_runs, n_windows):
    found = [
        rejected(*compared(10_000, (n_runs, n_runs), n_windows, seeds=(0.25, 0.25), gain=g), 0.01)
        for g in (1.0, 2.0, 3.0)
    ]
    assert found == pytest.approx(POWER[n_runs, n_windows], abs=0.03)


def test_a_difference_beyond_that_of_seeds_is_found():
    assert rejected(*compared(200, (3, 3), 14, seeds=(0.25, 0.25), gain=5.0), 0.01) > 0.95


def test_a_run_beside_a_baseline_by_hand():
    # Recall@1 of the run 1, 1/2, 1, 1, 0 and of the baseline 0, 1/2, 1/2, 0, 1/2.
    own, other = (
        [result_of(f"2019-10-0{day}", ranks, (1,)) for day, ranks in enumerate(table, start=1)]
        for table in (
            [[1, 1], [1, 2], [1, 1], [1, 1], [2, 0]],
            [[2, 2], [2, 1], [1, 2], [3, 0], [1, 2]],
        )
    )
    found = compare_with_baseline(own, "popularity", other)
    assert (found.name, found.aod["recall_at_1"]) == ("popularity", 1.5 / 5)
    # Differences 1, 0, 1/2, 1, -1/2 have the mean 0.4; t is 3.182.
    half = 3.182 * error_over_windows([1, 0, 0.5, 1, -0.5])
    test = found.tests["recall_at_1"]
    assert test.difference == pytest.approx(0.4)
    assert test.ci95 == pytest.approx((0.4 - half, 0.4 + half), abs=1e-3)
    assert found.better["recall_at_1"] == 3
