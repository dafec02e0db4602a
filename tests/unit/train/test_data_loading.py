"""The batches that a window is fitted and evaluated on."""

from itertools import chain

import pytest
import torch

from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.train.data_loading import Loader
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import tiny_params
from support.window_folders import markov_days, write_window_folder

ALONE = Rank(0, 1)
DAYS = markov_days(n_days=2, sessions_per_day=21, n_items=10)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return WindowFolder(write_window_folder(tmp_path_factory.mktemp("w"), DAYS, features=True))


def loader_of(store, features=(), split="test", past_length=0, **training):
    model = {"features": list(features), "past_length": past_length}
    sections = {"model": model, "training": training, "evaluation": {"split": split}}
    return Loader(store, tiny_params(sections))


def order(batches):
    return [batch.sessions.tolist() for batch in batches]


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_every_epoch_reads_all_sessions_in_another_order(store, loader):
    loading = loader_of(store, epochs=2, loader=loader)
    first, second = loading.fit_batches(store.windows[:1], ALONE)
    assert sorted(chain(*order(first))) == sorted(chain(*order(second))) == list(range(21))
    assert order(first) != order(second)
    assert first.n_steps == len(order(first)) == 3


def test_the_order_depends_on_seed_and_window_alone(store):
    runs = {
        (seed, window.name): order(loader_of(store, seed=seed).fit_batches([window], ALONE)[0])
        for seed in (1, 2)
        for window in store.windows
    }
    again = order(loader_of(store, seed=1).fit_batches(store.windows[:1], ALONE)[0])
    assert again == runs[1, store.windows[0].name]
    assert len({str(found) for found in runs.values()}) == 4


def test_the_first_epochs_do_not_depend_on_their_number(store):
    few, many = (loader_of(store, epochs=n).fit_batches(store.windows[:1], ALONE) for n in (1, 3))
    assert order(few[0]) == order(many[0])


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_several_windows_are_shuffled_together(store, loader):
    loading = loader_of(store, loader=loader)
    [batches] = loading.fit_batches(store.windows, ALONE)
    assert sorted(chain(*order(batches))) == list(range(42))
    assert any({row < 21 for row in batch} == {True, False} for batch in order(batches))
    table = [store.read(window, "train", ["item_id"])["item_id"] for window in store.windows]
    items = [*table[0].to_pylist(), *table[1].to_pylist()]
    for batch in batches:
        rows = zip(batch.sessions, batch.columns["item_id"], batch.lengths, strict=True)
        assert all(row[:n].tolist() == items[session] for session, row, n in rows)


@pytest.mark.parametrize(("steps", "n_epochs"), [(None, 2), (1, 1), (3, 1), (4, 2), (10, 4)])
def test_there_are_as_many_epochs_as_the_steps_need(store, steps, n_epochs):
    loading = loader_of(store, epochs=2, steps_per_window=steps)
    found = loading.fit_batches(store.windows[:1], ALONE)
    assert [batches.n_steps for batches in found] == [3] * n_epochs
    assert len({str(order(batches)) for batches in found}) == n_epochs


def test_epochs_of_one_step_are_repeated_for_each_step(store):
    loading = loader_of(store, epochs=2, steps_per_window=5, batch_size=64)
    found = loading.fit_batches(store.windows[:1], ALONE)
    assert [batches.n_steps for batches in found] == [1] * 5


@pytest.mark.parametrize("loader", ["memory", "stream"])
@pytest.mark.parametrize(("split", "n_sessions"), [("valid", 11), ("test", 10)])
def test_evaluation_reads_the_whole_split_by_rows_of_its_file(store, loader, split, n_sessions):
    loading = loader_of(store, split=split, loader=loader)
    batches = loading.evaluation_batches(store.windows[1], ALONE)
    ids = loading.evaluation_sessions(store.windows[1])["session_id"].to_pylist()
    assert sorted(chain(*order(batches))) == list(range(n_sessions)) == list(range(len(ids)))
    table = store.read(store.windows[1], split, ["session_id", "item_id"]).to_pydict()
    assert table["session_id"] == ids
    for batch in batches:
        for session, row, n in zip(
            batch.sessions.tolist(), batch.columns["item_id"].tolist(), batch.lengths, strict=True
        ):
            assert row[:n] == table["item_id"][session]


def test_only_columns_of_the_models_features_are_read(store):
    batch = next(iter(loader_of(store, ("price",)).evaluation_batches(store.windows[0], ALONE)))
    assert list(batch.columns) == ["item_id", "price"]
    assert batch.columns["price"].dtype == torch.float32


def test_streaming_all_three_splits_is_rejected(store):
    with pytest.raises(ConfigError, match=r"set evaluation\.split to valid or test, or training"):
        loader_of(store, split="all", loader="stream")
    assert loader_of(store, split="all", loader="memory")
