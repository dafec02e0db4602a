"""Counts of lists, over batches and processes, and what is known of items."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.train import likeness, list_counts
from dayahead.train.item_history import ItemHistory
from dayahead.train.list_counts import ListCounts
from dayahead.windows.folder import WindowFolder
from support.list_oracle import ALONE, Lists, some_lists
from support.listed_items import Row, add_items
from support.live_windows import replaced, rewrite
from support.window_folders import write_window_folder


def same(one, other):
    assert one.n_lists == other.n_lists
    for name in ("items", "counts", "own", "alike"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@given(some_lists())
def test_counting_early_gives_the_same_counts(lists):
    whole = lists.counted(batch_size=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_counts, "WAITING", 0)
        same(lists.counted(batch_size=1), whole)


class Gathering:
    """A process that gathers what others have counted beside its own."""

    device = torch.device("cpu")

    def __init__(self):
        self.gathered = []

    def all_gather(self, value):
        self.gathered.append(value)
        return self.gathered


@given(some_lists(), st.integers(0, 8))
def test_processes_add_up_and_one_may_have_no_list(lists, n_first):
    process = Gathering()
    parts = [slice(0, n_first), slice(n_first, None)]
    for part in parts:
        some = replace(lists, shown=lists.shown[part], sessions=lists.sessions[part])
        joined = some.counted(process=process, length=len(lists.shown[0]))
    same(joined, lists.counted())


def test_past_events_and_later_ones_are_not_in_the_session():
    """Of 5 6 7 8 the first is of the past and the last the target: the list 5 6 8 has one own."""
    counts = ListCounts(3, None, ALONE)
    columns = {"item_id": torch.tensor([[5, 6, 7, 8]]), "_is_past": torch.tensor([[1, 0, 0, 0]])}
    counts.add(torch.tensor([[5, 6, 8]]), columns, torch.tensor([3]))
    assert counts.joined().own.tolist() == [0, 1, 0]
    assert counts.joined().alike is None


def test_items_have_their_sessions_and_newest_attribute(tmp_path):
    """Indices 2, 3, 4; on the second day 3 has the unknown category, and 2 another one."""
    path = write_window_folder(
        tmp_path, [[[20, 30, 20], [20]], [[30, 40], [20, 20]]], features=True
    )
    file = path / "session_start_date=2026-01-02-train.parquet"
    rewrite(file, lambda table: replaced(table, "category", [[1, 3], [2, 4]]))
    folder = WindowFolder(path)
    history = ItemHistory(folder, folder.windows[0], "category")
    history.advance(folder.windows[0])
    assert history.known.n_sessions == 2
    assert history.known.sessions.tolist() == [0, 0, 2, 1, 0]
    assert history.known.is_new[2:].tolist() == [True, True, True]
    assert history.attribute[2:].tolist() == [20 % 3 + 2, 30 % 3 + 2, -4]
    for _ in range(2):  # a window is read once
        history.advance(folder.windows[1])
    assert (history.known.n_sessions, history.known.sessions.tolist()) == (4, [0, 0, 3, 2, 1])
    assert history.known.is_new[2:].tolist() == [False, False, True]
    assert history.attribute[2:].tolist() == [4, 30 % 3 + 2, 3]


def test_vectors_are_read_in_parts_of_a_batch():
    """Two lists at once do not fit: the counts are the same."""
    random = np.random.default_rng(1)
    vectors = {item: random.normal(size=3).tolist() for item in range(2, 9)}
    shown = [random.permutation(range(2, 9))[:4].tolist() for _ in range(5)]
    lists = Lists(shown, [[2]] * 5, [[2]], 1, {}, {2}, vectors)
    whole = lists.counted(batch_size=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likeness, "COMPONENTS", 1)
        same(lists.counted(batch_size=5), whole)


def test_the_table_of_items_precedes_what_events_say(tmp_path):
    """Its newest row of 20 says 4; 40 is listed before anyone clicks it, 50 without a value."""
    path = write_window_folder(
        tmp_path, [[[20, 30], [20, 20]], [[30, 40], [50, 20]]], features=True
    )
    rows = [
        Row(20, category=2),
        Row(20, day=1, category=4),
        Row(40, category=3),
        Row(50, category=1),
    ]
    folder = WindowFolder(add_items(path, rows))
    history = ItemHistory(folder, folder.windows[0], "category")
    assert history.attribute[2:].tolist() == [-2, -3, -4, -5]
    history.advance(folder.windows[0])
    assert history.attribute[2:].tolist() == [2, 30 % 3 + 2, 3, -5]
    history.advance(folder.windows[1])
    assert history.attribute[2:].tolist() == [4, 30 % 3 + 2, 3, -5]
