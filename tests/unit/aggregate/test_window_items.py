"""Items by window, drift, and what is known of targets, from windows written by hand."""

from datetime import timedelta

import numpy as np
import pytest

from dayahead.aggregate.targets import ABSENT, targets_of
from dayahead.aggregate.window_items import items_by_window
from dayahead.core.columns import FIRST_TIME
from dayahead.core.errors import DataError
from dayahead.windows.folder import WindowFolder, vocabulary_path
from support.live_windows import replaced, rewrite
from support.results_folders import window_ranks
from support.window_folders import START, day, write_window_folder

DAYS = [[[1, 2], [1, 3, 1]], [[2, 1], [2, 4]], [[5, 6], [7, 8]]]


@pytest.fixture
def folder(tmp_path):
    return WindowFolder(write_window_folder(tmp_path, DAYS))


def test_items_new_items_and_drift(folder):
    items = [items for items, _ in items_by_window(folder)]
    assert [(each.window, each.n_items, each.n_new, each.kept) for each in items] == [
        (day(0), 3, 3, None),
        (day(1), 3, 1, 2 / 3),  # 1 and 2 of 1, 2, 4
        (day(2), 4, 4, 0),
    ]


def test_an_item_that_comes_back_is_not_new(tmp_path):
    folder = WindowFolder(write_window_folder(tmp_path, [[[1, 2]], [[3, 4]], [[1, 5]]]))
    assert [items.n_new for items, _ in items_by_window(folder)] == [2, 2, 1]


def test_drift_is_of_the_most_popular_items_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.aggregate.window_items.N_TOP", 1)
    folder = WindowFolder(write_window_folder(tmp_path, DAYS))
    kept = [items.kept for items, _ in items_by_window(folder)]
    assert kept == [None, 0, 0]  # 1, then 2; of equal counts the lower index, 5's, comes first


def test_targets_of_last_items(folder):
    _, counts = next(items_by_window(folder))
    ranks = window_ranks([1], targets=[5], session_ids=["1-000001"])  # [2, 4], in the test split
    targets = targets_of(folder, folder.windows[1], "test", ranks, counts)
    assert targets.n_before.tolist() == [1]
    assert targets.popularity.tolist() == [ABSENT]
    both = window_ranks([1, 1], targets=[2, 5], session_ids=["1-000000", "1-000001"])
    targets = targets_of(folder, folder.windows[1], "all", both, counts)
    assert targets.popularity.tolist() == [1, ABSENT]  # 1 has 3 of 5 events


def test_targets_of_all_positions(folder):
    ranks = window_ranks(
        [1, 1, 1], [3, 4, 2], ["0-000000", "0-000001", "0-000001"], positions=[1, 1, 2]
    )
    counts = np.array([0, 0, 3, 1, 1, 0])
    targets = targets_of(folder, folder.windows[0], "train", ranks, counts)
    assert targets.n_before.tolist() == [1, 1, 2]
    assert targets.popularity.tolist() == [2, 2, 1]


def test_positions_beyond_a_session_are_those_of_other_windows(folder):
    """As after `preprocess` with a smaller sessions.max_length, but no fit."""
    ranks = window_ranks([1, 1], [3, 2], ["0-000000", "0-000001"], positions=[2, 1])
    with pytest.raises(DataError, match=r"expected the train sessions of .*, found others"):
        targets_of(folder, folder.windows[0], "train", ranks, np.zeros(9, np.int64))


def test_ages_are_hours_before_the_window_begins(tmp_path):
    write_window_folder(tmp_path, DAYS)
    hours = (0, 12, 23.5, 30, 50, 50, 50, 50)
    times = [START + timedelta(hours=each) for each in hours]
    rewrite(vocabulary_path(tmp_path, "item_id"), lambda table: replaced(table, FIRST_TIME, times))
    folder = WindowFolder(tmp_path)
    ranks = window_ranks([1, 1], targets=[2, 5], session_ids=["1-000000", "1-000001"])
    targets = targets_of(folder, folder.windows[1], "all", ranks, np.zeros(10, np.int64))
    assert targets.age.tolist() == [24, -6]
