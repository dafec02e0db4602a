"""Averages of lists.csv, and what the report says of them."""

import numpy as np
import pytest

from dayahead.aggregate.conclusions import list_conclusion
from dayahead.aggregate.lists import ListAverage, average_lists
from dayahead.core.errors import DataError
from dayahead.outputs.lists import ListRow, add_lists, read_lists, start_lists
from dayahead.statistics.intervals import mean_interval
from support.results_folders import write_lists

WINDOWS = [f"2026-01-0{day}" for day in range(2, 8)]
NOVELTY = [6.0, 7.0, 6.5, 6.5, 7.0, 6.0]
CLICKS = {"clicked_novelty": 9.0, "clicked_popularity": 0.01, "clicked_own": 0.125}


def figures(number):
    return {
        "coverage_at_5": 0.5, "coverage_at_10": 0.75, "novelty_at_5": 2 * NOVELTY[number],
        "novelty_at_10": NOVELTY[number], "popularity_ratio_at_5": None if number else 2.0,
        "popularity_ratio_at_10": 1.5, "own_at_5": 0.25, "own_at_10": 0.2,
        "repeats_at_5": number / 10 if number else None, "repeats_at_10": 0.5 if number else None,
        **CLICKS,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path):
    write_lists(tmp_path, {window: figures(n) for n, window in enumerate(WINDOWS)})
    return tmp_path


def test_figures_are_averaged_over_the_windows_that_have_them(results):
    found = average_lists(results, WINDOWS)
    assert (found.n_windows, found.cutoffs) == (6, [5, 10])
    assert found.aod["coverage_at_5"] == 0.5
    assert found.aod["novelty_at_10"] == 6.5
    assert found.aod["repeats_at_5"] == pytest.approx(0.3)
    assert found.aod["popularity_ratio_at_5"] == 2.0
    assert found.ci95["popularity_ratio_at_5"] is None


def test_intervals_of_bits_and_ratios_may_be_above_1(results):
    found = average_lists(results, WINDOWS)
    assert found.ci95["coverage_at_5"] == (0.5, 0.5)
    assert found.ci95["popularity_ratio_at_10"] == (1.5, 1.5)
    assert found.ci95["clicked_novelty"] == (9.0, 9.0)
    low, high = found.ci95["novelty_at_10"]
    assert (low, high) == mean_interval(NOVELTY, most=np.inf)
    assert low < 6.5 < high


def test_the_interval_of_diversity_ends_at_1_and_of_vectors_at_2(tmp_path):
    values = [0.6, 1.0, 0.9, 1.0, 1.0, 0.99]
    write_lists(tmp_path, {w: {"diversity_at_5": x} for w, x in zip(WINDOWS, values, strict=True)})
    of_attribute, of_vector = (
        average_lists(tmp_path, WINDOWS, by_vector=by_vector).ci95["diversity_at_5"][1]
        for by_vector in (False, True)
    )
    assert of_attribute == 1.0 < of_vector == mean_interval(values, most=2.0)[1]


def test_figures_of_other_packages_may_have_any_range(tmp_path):
    values = [-3.0, 4.0, -2.0, 5.0, -1.0, 2.0]
    write_lists(tmp_path, {w: {"odd_at_5": x} for w, x in zip(WINDOWS, values, strict=True)})
    found = average_lists(tmp_path, WINDOWS)
    assert found.ci95["odd_at_5"] == mean_interval(values, -np.inf, np.inf)
    assert [*found.table(None)] == [("odd", ["odd_at_5"], None)]


def test_the_sentence_and_the_table(results):
    found = average_lists(results, WINDOWS)
    assert list_conclusion(found) == (
        "In a window, lists of 10 show 75.0 % of the items that they could; 20.0 % of their places "
        "are items of the session, as is 12.5 % of what users click, and what they show is 1.50 "
        "times as popular as it."
    )
    rows = {names[-1]: clicked for _, names, clicked in found.table("brand")}
    assert rows == {
        "coverage_at_10": None,
        "novelty_at_10": "clicked_novelty",
        "popularity_ratio_at_10": None,
        "own_at_10": "clicked_own",
        "repeats_at_10": None,
    }


def test_without_lists_there_is_nothing_to_say(tmp_path):
    write_lists(tmp_path, {})
    found = average_lists(tmp_path, WINDOWS)
    assert found == ListAverage()
    assert list_conclusion(found) is None
    assert list(found.table(None)) == []


def test_a_window_that_was_not_evaluated_is_an_error(results):
    with pytest.raises(DataError, match=r"windows\.csv, found 2026-01-07 too"):
        average_lists(results, WINDOWS[:-1])


def test_rows_are_read_as_they_were_written(tmp_path):
    row = ListRow("2026-01-02", 3, 7, {"coverage_at_1": 1 / 3, "repeats_at_1": None})
    start_lists(tmp_path, list(row.figures))
    add_lists(tmp_path, row)
    assert read_lists(tmp_path) == [row]
