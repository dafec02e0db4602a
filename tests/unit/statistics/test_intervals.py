"""Intervals and p-values: by hand, against the ordinary t-test, and coverage by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_1samp

from dayahead.statistics.intervals import (
    Variance,
    half_width,
    mean_interval,
    over_runs,
    over_windows,
    p_value,
    runs_interval,
)
from support.simulated_runs import autocorrelated

COVERAGE = {
    (5, 0.0): 0.95, (5, 0.3): 0.905, (5, 0.6): 0.79,
    (7, 0.0): 0.95, (7, 0.3): 0.92, (7, 0.6): 0.84,
    (14, 0.0): 0.95, (14, 0.3): 0.94, (14, 0.6): 0.90,
    (47, 0.0): 0.95, (47, 0.3): 0.945, (47, 0.6): 0.935,
}  # fmt: skip
"""Of 95 % intervals, by the number of windows and their autocorrelation; docs/protocol.md."""


def coverage(n_windows, rho, n_times):
    values = autocorrelated(np.random.default_rng(7), (n_times, n_windows), rho)
    half = half_width([over_windows(values)], 0.025)
    return float(np.mean(np.abs(values.mean(axis=-1)) <= half))


@pytest.mark.slow
@pytest.mark.parametrize(("n_windows", "rho"), COVERAGE)
def test_coverage(n_windows, rho):
    assert coverage(n_windows, rho, 100_000) == pytest.approx(COVERAGE[n_windows, rho], abs=0.006)


def test_coverage_does_not_collapse_where_windows_resemble_their_neighbours():
    """A percentile bootstrap over windows covers .83, .92, .60 and .63."""
    assert coverage(5, 0, 4000) > 0.94
    assert coverage(14, 0, 4000) > 0.94
    assert coverage(14, 0.6, 4000) > 0.88
    assert coverage(47, 0.6, 4000) > 0.92


def test_the_slowest_cosines_by_hand():
    random = np.random.default_rng(1)
    for n, n_cosines in ((5, 3), (14, 3), (28, 4), (47, 5), (380, 21)):
        values = random.normal(size=n)
        time = (np.arange(n) + 0.5) / n
        squares = [
            2 / n * (np.cos(np.pi * k * time) @ values) ** 2 for k in range(1, n_cosines + 1)
        ]
        found = over_windows(values)
        assert found.freedom == n_cosines
        assert found.value == pytest.approx(np.mean(squares) / n)


def test_with_all_cosines_it_is_the_variance_of_a_mean():
    values = np.array([0.31, 0.35, 0.28, 0.40])
    found = over_windows(values)
    assert found.freedom == 3
    assert found.value == pytest.approx(values.var(ddof=1) / 4)
    assert p_value(values.mean(), [found]) == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_a_trend_widens_the_interval():
    noise = np.random.default_rng(2).normal(size=40)
    low, high = mean_interval(0.5 + 0.001 * noise)
    wide_low, wide_high = mean_interval(0.5 + 0.001 * noise + np.linspace(-0.01, 0.01, 40))
    assert wide_high - wide_low > 5 * (high - low)


def test_no_interval_for_fewer_than_five_windows():
    assert mean_interval([0.1, 0.2, 0.3, 0.4]) is None


def test_an_interval_of_equal_windows_is_a_point():
    assert mean_interval([0.5] * 6) == (0.5, 0.5)


def test_a_metric_is_between_0_and_1():
    assert mean_interval([0.0, 0.0, 0.0, 0.1, 0.0])[0] == 0
    assert mean_interval([1.0, 1.0, 1.0, 0.9, 1.0])[1] == 1


def test_parts_of_a_variance_by_hand():
    # t is 4.303 for 2 and 2.776 for 4 degrees of freedom: the root of 2 x 4.303^2 + 0.5 x 2.776^2.
    parts = [Variance(2.0, 2), Variance(0.5, 4)]
    assert half_width(parts, 0.025) == pytest.approx((2 * 4.303**2 + 0.5 * 2.776**2) ** 0.5, 1e-3)


@given(st.floats(1e-4, 1e4), st.integers(1, 50))
def test_the_p_value_of_one_part_is_that_of_a_t_test(statistic, freedom):
    found = p_value(-3 * statistic, [Variance(9.0, freedom)])
    assert found == pytest.approx(max(2 * t.sf(statistic, freedom), 2e-12), rel=1e-6)


def test_the_interval_of_a_p_value_ends_at_0():
    parts = [Variance(2.0, 2), Variance(0.5, 4)]
    p = p_value(7.5, parts)
    assert half_width(parts, p / 2) == pytest.approx(7.5)


def test_no_difference_and_no_variance():
    assert p_value(0.0, [Variance(0.0, 3)]) == 1
    assert p_value(0.1, [Variance(0.0, 3)]) == 0


def test_the_spread_over_runs_by_hand():
    # Means 1 and 3 have the variance 2; 0, 3 and 6 have 9: 2 / 2 + 9 / 3.
    a, b = np.array([[0.0, 2], [2, 4]]), np.array([[0.0, 0], [2, 4], [6, 6]])
    assert over_runs(a, b) == Variance(4.0, 2)
    assert over_runs(b, b) == Variance(6.0, 4)
    assert over_runs(a[:1], b) == Variance(9 / 1 + 9 / 3, 2)  # the other's, of 3 runs
    assert over_runs(a[:1], b[:1]) is None


def test_the_interval_over_windows_and_runs_by_hand():
    # Runs with the means 2 and 4 have the variance 2, by 2 runs 1, with 1 degree of freedom.
    values = np.array([[0.0, 1, 2, 3, 4], [2, 3, 4, 5, 6]])
    of_windows = over_windows(np.arange(1.0, 6))
    half = half_width([of_windows, Variance(1.0, 1)], 0.025)
    assert runs_interval(values) == pytest.approx((3 - half, 3 + half))
    half = half_width([of_windows], 0.025)
    assert runs_interval(values[:1]) == pytest.approx((2 - half, 2 + half))
