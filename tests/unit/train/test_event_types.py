"""Types of events: which are targets and what each counts, by hand and against plain Python."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.events import EventsConfig
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.train.batches import Sessions
from dayahead.train.checks import select_windows
from dayahead.train.data_loading import Loader
from dayahead.train.event_types import EventTypes
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import tiny_params
from support.typed_windows import add_types, given_types
from support.window_folders import add_pasts, write_window_folder

DAYS = [[[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 5]]]
VIEW, CART, PURCHASE = 2, 3, 4


@pytest.fixture
def folder(tmp_path):
    path = write_window_folder(tmp_path / "windows", DAYS)
    return WindowFolder(add_types(path, given_types(s0="vcv", s1="pv")))


def types_of(folder, **settings):
    return EventTypes.of(folder, EventsConfig(**({"targets": None, "weights": None} | settings)))


def loader(folder, **sections):
    return Loader(folder, tiny_params(sections))


def test_indices_of_the_vocabulary(folder):
    types = types_of(folder, targets=("purchase",), weights={"cart": 3.0, "view": 0.5})
    assert types.is_target.tolist() == [False, False, False, False, True]
    assert types.worth.tolist() == [1, 1, 0.5, 3, 1]
    assert types.fingerprint() == {"targets": [PURCHASE], "weights": [(VIEW, 0.5), (CART, 3.0)]}
    assert types_of(folder).fingerprint() == {"targets": None, "weights": None}


@pytest.mark.parametrize("settings", [{"targets": ("purchse",)}, {"weights": {"purchse": 2.0}}])
def test_an_unknown_type_is_an_error_that_names_the_types(folder, settings):
    name = next(iter(settings))
    expected = (
        rf"^params\.yaml: events\.{name}: purchse: no type of the data's events, which are view, "
        r"cart, purchase; did you mean purchase\?$"
    )
    with pytest.raises(ConfigError, match=expected):
        select_windows(folder, tiny_params({"events": settings}))


def test_windows_without_types_are_an_error(tmp_path):
    folder = WindowFolder(write_window_folder(tmp_path, DAYS))
    with pytest.raises(ConfigError, match=r"events: the windows have no types .*event_type"):
        types_of(folder, targets=("view",))


def test_windows_without_a_target_are_an_error(folder):
    """The only purchase of each day is the first event of its session."""
    params = tiny_params({"events": {"targets": ["purchase"]}})
    expected = r"events.targets: no session has a purchase .* any of the 1 windows"
    with pytest.raises(ConfigError, match=expected):
        select_windows(folder, params)


def test_types_are_streamed_too(folder):
    settings = {"evaluation": {"split": "test"}, "events": {"targets": ["cart"]}}
    read, streamed = (
        loader(folder, training={"loader": name}, **settings).evaluation_batches(
            folder.windows[1], Rank(0, 1)
        )
        for name in ("memory", "stream")
    )
    for ours, theirs in zip(streamed, read, strict=True):
        assert ours.columns.keys() == theirs.columns.keys() > {ITEM_ID}
        assert all(torch.equal(ours.columns[name], each) for name, each in theirs.columns.items())


def test_sessions_are_marked_once_they_are_read(folder):
    events = {"targets": ["cart"], "weights": {"purchase": 9.0}}
    found = loader(folder, events=events).evaluated_sessions(folder.windows[0])
    assert {*found.columns} == {"item_id", "_is_target", "_worth"}
    assert found.columns["_is_target"].tolist() == [0, 1, 0, 0, 0]
    assert found.columns["_worth"].tolist() == [1, 1, 1, 9, 1]
    with_type = loader(folder, events=events, model={"features": ["event_type"]})
    types = with_type.evaluated_sessions(folder.windows[0]).columns["event_type"]
    assert types.tolist() == [VIEW, CART, VIEW, PURCHASE, VIEW]
    assert {*loader(folder).evaluated_sessions(folder.windows[0]).columns} == {"item_id"}


def test_the_past_has_types_too(tmp_path):
    path = write_window_folder(tmp_path / "windows", DAYS, features=True)
    add_pasts(path, [[[4], []], [[4], []]], longest=3)
    folder = WindowFolder(add_types(path, given_types(s0="vcv", s1="pv")))
    sections = {"model": {"past_length": 2}, "events": {"weights": {"view": 2.0}}}
    found = loader(folder, **sections).evaluated_sessions(folder.windows[0])
    assert found.columns["_worth"].tolist() == [2, 2, 1, 2, 1, 2]
    assert found.columns["_is_past"].tolist() == [1, 0, 0, 0, 0, 0]


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=8),
    st.sets(st.integers(2, 4), min_size=1),
)
def test_targets_equal_plain_python(lists, wanted):
    types = EventTypes(np.isin(np.arange(5), [*wanted]), None)
    table = pa.table({"event_type": pa.array(lists, pa.list_(pa.int32()))})
    every = [[n for n, kind in enumerate(row) if n and kind in wanted] for row in lists]
    for positions, steps in (("all", every), ("last", [row[-1:] for row in every])):
        found = types.targets_in(table, positions)
        assert found.counts.tolist() == [len(row) for row in steps]
        assert found.steps.tolist() == [step for row in steps for step in row]


def test_without_types_all_events_are_targets():
    table = pa.table({"item_id": pa.array([[5, 6, 7], [8, 9]], pa.list_(pa.int32()))})
    last = EventTypes(None, None).targets_in(table, "last")
    assert (last.counts.tolist(), last.steps) == ([1, 1], None)
    every = EventTypes(None, None).targets_in(table, "all")
    assert (every.counts.tolist(), every.steps.tolist()) == ([2, 1], [1, 2, 1])


def test_marks_of_a_whole_batch_are_on_every_process():
    marked = Sessions(
        {"item_id": torch.tensor([5, 6, 7, 8, 9]), "_worth": torch.tensor([1.0, 2, 3, 4, 5])},
        torch.tensor([0, 3, 5]),
    )
    batch = marked.gather(torch.tensor([1, 0]), Rank(1, 2))
    assert batch.columns["_worth"].tolist() == [[1, 2, 3]]
    assert batch.global_marks["_worth"].tolist() == [[4, 5, 0], [1, 2, 3]]
