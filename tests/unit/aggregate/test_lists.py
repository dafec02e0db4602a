"""Averages of lists.csv, and what the report says of them."""

import numpy as np
import pytest

from dayahead.aggregate.conclusions import list_conclusion
from dayahead.aggregate.lists import ListAverage, average_lists
from dayahead.config.metric_names import OF_LISTS
from dayahead.core.errors import DataError
from dayahead.outputs.lists import ListRow, add_lists, read_lists, start_lists
from dayahead.statistics.intervals import mean_interval
from support.results_folders import write_lists

WINDOWS = [f"2026-01-0{day}" for day in range(2, 8)]
NOVELTY = [6.0, 7.0, 6.5, 6.5, 7.0, 6.0]
VALUES = {"coverage": 0.75, "gini": 0.5, "popularity": 0.01, "new": 0.1, "own": 0.2}


def figures(number):
    return {
        f"{name}_at_{k}": value
        for name, value in (VALUES | {"novelty": NOVELTY[number]}).items()
        for k in (5, 10)
    }


@pytest.fixture
def results(tmp_path):
    write_lists(tmp_path, {window: figures(n) for n, window in enumerate(WINDOWS)})
    return tmp_path


def test_figures_are_averaged_over_the_windows(results):
    found = average_lists(results, WINDOWS)
    assert (found.n_windows, found.cutoffs) == (6, [5, 10])
    assert found.aod["coverage_at_5"] == 0.75
    assert found.aod["novelty_at_10"] == 6.5


def test_intervals_of_bits_may_be_above_1(results):
    found = average_lists(results, WINDOWS)
    assert found.ci95["coverage_at_5"] == (0.75, 0.75)
    low, high = found.ci95["novelty_at_10"]
    assert (low, high) == mean_interval(NOVELTY, most=np.inf)
    assert low < 6.5 < high


def test_the_sentence_and_the_table(results):
    found = average_lists(results, WINDOWS)
    assert list_conclusion(found) == (
        "In a window, lists of 10 show 75.0 % of the items that they could; 20.0 % of their places "
        "are items of the session."
    )
    assert [names for _, names in found.table()] == [
        [f"{name}_at_5", f"{name}_at_10"] for name in OF_LISTS
    ]


def test_without_lists_there_is_nothing_to_say(tmp_path):
    write_lists(tmp_path, {})
    found = average_lists(tmp_path, WINDOWS)
    assert found == ListAverage()
    assert list_conclusion(found) is None
    assert list(found.table()) == []


def test_a_window_that_was_not_evaluated_is_an_error(results):
    with pytest.raises(DataError, match=r"windows\.csv, found 2026-01-07 too"):
        average_lists(results, WINDOWS[:-1])


def test_rows_are_read_as_they_were_written(tmp_path):
    row = ListRow("2026-01-02", 3, 7, {"coverage_at_1": 1 / 3})
    start_lists(tmp_path, list(row.figures))
    add_lists(tmp_path, row)
    assert read_lists(tmp_path) == [row]
