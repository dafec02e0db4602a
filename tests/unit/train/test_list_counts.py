"""Counts of lists, over batches and processes, and what is known of items."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.train import list_counts
from dayahead.train.evaluated_lists import ListEvaluation
from dayahead.train.list_counts import ListCounts
from dayahead.windows.folder import WindowFolder
from support.list_oracle import ALONE, some_lists
from support.tiny_settings import tiny_params
from support.window_folders import write_window_folder


def same(one, other):
    assert one.n_lists == other.n_lists
    for name in ("items", "counts", "own"):
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
    counts = ListCounts(3, ALONE)
    columns = {"item_id": torch.tensor([[5, 6, 7, 8]]), "_is_past": torch.tensor([[1, 0, 0, 0]])}
    counts.add(torch.tensor([[5, 6, 8]]), columns, torch.tensor([3]), torch.tensor([True]))
    assert counts.joined().own.tolist() == [0, 1, 0]


def test_items_have_their_sessions(tmp_path):
    """Indices 2, 3, 4 of the items 20, 30, 40."""
    path = write_window_folder(tmp_path, [[[20, 30, 20], [20]], [[30, 40], [20, 20]]])
    folder = WindowFolder(path)
    config = tiny_params({"evaluation": {"lists": 2}}).evaluation
    found = ListEvaluation(folder, config, folder.windows[0], ALONE)
    found.start(folder.windows[0], 3)
    assert (found.n_sessions, found.sessions.tolist()) == (2, [0, 0, 2, 1, 0])
    assert found.is_new[2:].tolist() == [True, True, True]
    for _ in range(2):  # a window is read once
        found.start(folder.windows[1], 3)
    assert (found.n_sessions, found.sessions.tolist()) == (4, [0, 0, 3, 2, 1])
    assert found.is_new[2:].tolist() == [False, False, True]
