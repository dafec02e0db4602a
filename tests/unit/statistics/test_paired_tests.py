"""Two settings by the ranks of their runs, and every validation error."""

import pytest

from dayahead.core.errors import ComparisonError, DataError
from dayahead.outputs.tables import write_ranks
from dayahead.statistics.paired_tests import compare
from support.results_folders import CUTOFFS, DAYS, window_ranks, write_results


@pytest.fixture
def runs(tmp_path):
    better = {day: [max(rank - 1, 0) or rank for rank in ranks] for day, ranks in DAYS.items()}
    return write_results(tmp_path / "a", DAYS), write_results(tmp_path / "b", better)


def test_swapping_the_settings_only_changes_the_sign(runs):
    a, b = [runs[0]], [runs[1], runs[0]]
    forth, back = compare(a, b, CUTOFFS), compare(b, a, CUTOFFS)
    for one, other in zip(forth.metrics, back.metrics, strict=True):
        assert one.test.difference == -other.test.difference
        assert one.test.p == pytest.approx(other.test.p)
        assert one.better == other.worse


def test_means_are_over_windows(runs):
    comparison = compare(runs[:1], runs[1:], CUTOFFS)
    first = comparison.metrics[0]
    assert first.name == "recall_at_10"
    assert first.a == pytest.approx((4 * 3 / 4 + 2 * 2 / 4) / 6)
    assert (comparison.n_windows, comparison.n_sessions, comparison.n_targets) == (6, 24, 24)
    assert (comparison.outside_a, comparison.outside_b) == ((6,), (6,))


def test_a_run_equals_itself(runs):
    comparison = compare(runs[:1], runs[:1], CUTOFFS)
    assert comparison.has_equal_ranks
    for metric in comparison.metrics:
        assert metric.test.ci95 == (0, 0)
        assert metric.equal == 6


def test_chosen_windows_are_compared_alone(runs):
    (runs[1] / "ranks" / "2019-10-04.parquet").unlink()
    comparison = compare(runs[:1], runs[1:], CUTOFFS, ["2019-10-02", "2019-10-03"])
    assert (comparison.n_windows, comparison.n_sessions) == (2, 8)
    assert comparison.metrics[0].a == pytest.approx(3 / 4)


def test_different_windows_are_rejected(runs):
    (runs[1] / "ranks" / "2019-10-04.parquet").unlink()
    with pytest.raises(
        ComparisonError, match=r"6 in A1 and 5 in B1; only in A1: 2019-10-04; only in B1: none"
    ):
        compare(runs[:1], runs[1:], CUTOFFS)


def test_different_sessions_are_rejected(runs):
    other_sessions = window_ranks([1, 2], session_ids=["s0", "other"])
    write_ranks(runs[1], "2019-10-04", other_sessions)
    with pytest.raises(
        ComparisonError,
        match=r"sessions in 1 of 6 windows: 2019-10-04 \(4 sessions against 2, 3 only in the f",
    ):
        compare(runs[:1], runs[1:], CUTOFFS)


def test_different_targets_are_rejected(runs):
    for day in DAYS:
        write_ranks(runs[1], day, window_ranks([1, 2, 3, 4], targets=[2, 3, 9, 9]))
    with pytest.raises(
        ComparisonError, match=r"targets in 6 of 6 .*\(2 of 4 targets\).* and 1 more"
    ):
        compare(runs[:1], runs[1:], CUTOFFS)


def test_a_folder_without_ranks_is_rejected(runs, tmp_path):
    with pytest.raises(DataError, match="found none"):
        compare(runs[:1], [tmp_path], CUTOFFS)


def with_positions(folder, ranks):
    """Two windows of the sessions a (3 items) and b (2 items), evaluated at all positions."""
    for window in ("2019-10-02", "2019-10-03"):
        found = window_ranks(ranks, session_ids=["a", "a", "b"], positions=[1, 2, 1])
        write_ranks(folder, window, found)
    return folder


def test_all_positions_are_paired_by_session_and_position(tmp_path):
    a = with_positions(tmp_path / "a", [1, 30, 30])
    b = with_positions(tmp_path / "b", [30, 1, 30])
    comparison = compare([a], [b], CUTOFFS)
    assert (comparison.n_sessions, comparison.n_targets) == (4, 6)
    recall = comparison.metrics[0]
    assert recall.a == recall.b == recall.targets_a == pytest.approx(1 / 3)


def test_the_last_position_against_all_is_rejected(tmp_path, runs):
    b = write_results(tmp_path / "c", {day: [1, 2, 3] for day in DAYS})
    for window in DAYS:
        write_ranks(b, window, window_ranks([1], session_ids=["s0"], positions=[1]))
    with pytest.raises(
        ComparisonError, match=r"positions in 6 of 6 windows: .*\(last against all\)"
    ):
        compare(runs[:1], [b], CUTOFFS)
