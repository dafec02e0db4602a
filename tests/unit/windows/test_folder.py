"""Windows as they are read: what is missing or damaged in them is named."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import WindowError
from dayahead.core.files import write_parquet
from dayahead.distributed.process import Rank
from dayahead.train.streaming import StreamedBatches
from dayahead.windows.folder import WindowFolder
from support.window_folders import markov_days, write_window_folder

DAYS = markov_days(n_days=2, sessions_per_day=30, n_items=25)


@pytest.fixture
def store(tmp_path):
    return WindowFolder(write_window_folder(tmp_path / "windows", DAYS, features=True))


def with_number(path, number):
    """Put a number into one of the file's prices."""
    table = pq.read_table(path, partitioning=None)
    prices = table["price"].to_pylist()
    prices[7][0] = number
    column = table.schema.get_field_index("price")
    given = pa.array(prices, table.schema.field(column).type)
    write_parquet(path, table.set_column(column, table.schema.field(column), given))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), None])
def test_numbers_that_are_none_are_refused(store, number):
    window = store.windows[1]
    path = store.path(window, "train")
    store.read(window, "train", ["item_id", "price"])
    with_number(path, number)
    told = f"{path.name}: column price holds values that are no numbers"
    with pytest.raises(WindowError, match=told):
        store.read(window, "train", ["item_id", "price"])
    with pytest.raises(WindowError, match=told):
        list(StreamedBatches((path,), ("item_id", "price"), 8, Rank(0, 1)))
    assert len(store.read(window, "train", ["item_id"])) == 30


@pytest.mark.parametrize(
    "ask",
    [
        lambda store, window: store.n_sessions(window, "train"),
        lambda store, window: store.items_in(window, "train"),
        lambda store, window: store.read(window, "train", ["item_id"]),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_file_cut_anywhere_is_named(store, ask, seed):
    window = store.windows[0]
    path = store.path(window, "train")
    held = path.read_bytes()
    path.write_bytes(held[: random.Random(seed).randrange(len(held))])
    with pytest.raises(WindowError, match=f"{path.name}: not readable.*dvc repro -f preprocess"):
        ask(store, window)


def test_a_file_that_is_gone_is_named(store):
    path = store.path(store.windows[0], "train")
    path.unlink()
    with pytest.raises(WindowError, match=f"{path.name}: not readable"):
        store.n_sessions(store.windows[0], "train")
