"""Reading window files: missing, damaged and non-finite ones are named."""

import hmac
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import WindowError
from dayahead.core.files import write_json, write_parquet
from dayahead.distributed.process import Rank
from dayahead.train.streaming import StreamedBatches
from dayahead.windows.folder import MANIFEST, WindowFolder
from support.window_folders import markov_days, write_window_folder

DAYS = markov_days(n_days=2, sessions_per_day=30, n_items=25)


@pytest.fixture
def store(tmp_path):
    return WindowFolder(write_window_folder(tmp_path / "windows", DAYS, features=True))


def set_price(path, number):
    """Replace one of the file's prices."""
    table = pq.read_table(path, partitioning=None)
    prices = table["price"].to_pylist()
    prices[7][0] = number
    column = table.schema.get_field_index("price")
    changed = pa.array(prices, table.schema.field(column).type)
    write_parquet(path, table.set_column(column, table.schema.field(column), changed))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), None])
def test_a_column_with_nan_or_infinity_is_rejected_however_it_is_read(store, number):
    window = store.windows[1]
    path = store.path(window, "train")
    store.read(window, "train", ["item_id", "price"])
    set_price(path, number)
    message = f"{path.name}: column price contains NaN or infinite values"
    with pytest.raises(WindowError, match=message):
        store.read(window, "train", ["item_id", "price"])
    with pytest.raises(WindowError, match=message):
        store.take(window, "train", pa.array([2, 7]), ["item_id", "price"])
    with pytest.raises(WindowError, match=message):
        list(StreamedBatches((path,), ("item_id", "price"), 8, Rank(0, 1)))
    assert len(store.read(window, "train", ["item_id"])) == 30


@pytest.mark.parametrize(
    "read",
    [
        lambda store, window: store.n_sessions(window, "train"),
        lambda store, window: store.items_in(window, "train"),
        lambda store, window: store.read(window, "train", ["item_id"]),
        lambda store, window: store.take(window, "train", pa.array([2]), ["item_id"]),
    ],
)
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99, None])
def test_a_truncated_or_missing_file_is_named(store, read, kept):
    window = store.windows[0]
    path = store.path(window, "train")
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(WindowError, match=f"{path.name}: not readable.*dvc repro -f preprocess"):
        read(store, window)


def test_all_is_every_session_once_in_the_files_order(store):
    window = store.windows[0]
    table = store.read(window, "all", ["session_id"])
    assert table.column_names == ["session_id"]
    train = store.read(window, "train", ["session_id"])
    assert table.equals(train.combine_chunks())
    assert store.n_sessions(window, "train") == 30


@pytest.mark.parametrize("role", ["train", "valid", "test", "all"])
def test_session_ids_that_hold_a_user_are_read_as_keyed_hashes(store, role):
    """The order stays that of the files, which is that of the ids as written."""
    window = store.windows[0]
    written = store.read(window, role, ["session_id", "item_id"])
    manifest = replace(store.manifest, hash_seed=-3)
    write_json(store.folder / MANIFEST, manifest.as_json())
    found = WindowFolder(store.folder)
    shown = [
        hmac.new(b"-3", each.encode(), "sha256").hexdigest()[:32]
        for each in written["session_id"].to_pylist()
    ]
    read = found.read(window, role, ["session_id", "item_id"])
    assert read["session_id"].to_pylist() == shown
    assert read["item_id"].combine_chunks() == written["item_id"].combine_chunks()
    if role != "all":
        taken = found.take(window, role, pa.array([2, 0]), ["session_id"])
        assert taken["session_id"].to_pylist() == [shown[2], shown[0]]
