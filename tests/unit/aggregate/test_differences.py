"""The test of two settings: by hand and on equal settings; a run beside a baseline."""

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from dayahead.aggregate.differences import compare_with_baseline, difference_test
from support.results_folders import result_of


def test_windows_alone_by_hand():
    # Differences 1, 2, 3, 4, 5: mean 3, standard error sqrt(2.5 / 5) = 0.7071; the table gives
    # t = 2.776 for 4 degrees of freedom. One run each: how much seeds differ is not known.
    test = difference_test(np.zeros((1, 5)), np.array([[1.0, 2, 3, 4, 5]]))
    assert test.difference == 3
    assert test.ci95 == pytest.approx((3 - 2.776 * 0.7071, 3 + 2.776 * 0.7071), abs=1e-3)
    assert test.p is None


def test_windows_and_runs_by_hand():
    # Windows: variance 2.5 / 5 = 0.5 with 4 degrees of freedom. Runs: means -1, 1 and 2, 4 have
    # variance 2 about their means, times 1/2 + 1/2 is 2, with 2. Together 2.5, with
    # 2.5^2 / (0.5^2 / 4 + 2^2 / 2) = 3.0303 degrees of freedom.
    a = np.array([[-1.0] * 5, [1.0] * 5])
    test = difference_test(a, a + np.arange(1.0, 6))
    assert test.difference == 3
    assert test.p == pytest.approx(2 * t.sf(3 / np.sqrt(2.5), 3.0303), abs=1e-5)


def test_equal_differences():
    assert difference_test(np.ones((2, 5)), np.ones((2, 5))).p == 1
    assert difference_test(np.zeros((2, 5)), np.ones((2, 5))).p == 0
    assert difference_test(np.zeros((2, 4)), np.ones((2, 4))).p is None


def equal_settings(random, n_runs, n_windows):
    """Metrics of runs that differ in their seeds alone.

    What windows have in common varies most. A run keeps an advantage over all windows, and its
    noise carries over from window to window, as its model does.
    """
    noise = random.normal(0, 0.003, (n_runs, n_windows))
    for window in range(1, n_windows):
        noise[:, window] = 0.8 * noise[:, window - 1] + 0.6 * noise[:, window]
    of_run, of_window = random.normal(0, 0.002, (n_runs, 1)), random.normal(0, 0.02, n_windows)
    return 0.38 + of_window + of_run + noise


@pytest.mark.parametrize(("n_runs", "n_windows"), [(1, 14), (2, 5), (3, 5), (3, 14), (5, 47)])
def test_equal_settings_are_rarely_found_to_differ(n_runs, n_windows):
    """Of 100 pairs at most 1; by a t-test over the windows of one run each 39 to 73."""
    random = np.random.default_rng(7)
    found = found_by_windows_alone = 0
    for _ in range(100):
        runs = equal_settings(random, 2 * n_runs, n_windows)
        p = difference_test(runs[:n_runs], runs[n_runs:]).p
        found += p is not None and p < 0.01
        found_by_windows_alone += ttest_1samp(runs[0] - runs[n_runs], 0).pvalue < 0.01
    assert found <= 1
    assert 39 <= found_by_windows_alone <= 73


def test_a_difference_beyond_that_of_seeds_is_found():
    random = np.random.default_rng(7)
    found = 0
    for _ in range(100):
        runs = equal_settings(random, 6, 14)
        found += difference_test(runs[:3], runs[3:] + 0.02).p < 0.01
    assert found >= 95


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
    # Differences 1, 0, 1/2, 1, -1/2 have the mean 0.4 and the variance 1.7 / 4; t is 2.776.
    half = 2.776 * np.sqrt(1.7 / 4 / 5)
    test = found.tests["recall_at_1"]
    assert test.difference == pytest.approx(0.4)
    assert test.ci95 == pytest.approx((0.4 - half, 0.4 + half), abs=1e-3)
    assert found.better["recall_at_1"] == 3
