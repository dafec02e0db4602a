"""Item vectors from a file: at the right rows whenever the table grows, and what is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.core.errors import ConfigError
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.pretrained import read_item_vectors
from support.tiny_settings import tiny_model

VOCABULARY = pa.table(
    {"index": pa.array([2, 3, 4, 5], pa.int32()), "value": pa.array([70, 30, 90, 50], pa.int64())}
)
VECTORS = {50: [1.0, 2.0, 3.0], 11: [9.0, 9.0, 9.0], 30: [4.0, 5.0, 6.0]}
"""Of two items of the vocabulary and one that is in no session, in an order of their own."""


def write(path, vectors=VECTORS, type_=None, values=None):
    values = pa.array(values if values is not None else list(vectors))
    lists = pa.array(list(vectors.values()), type_ or pa.list_(pa.float32()))
    pq.write_table(pa.table({"value": values, "vector": lists}), path)
    return path


def given_table(path, *sizes, is_frozen=False):
    table = GrowingEmbedding(3, std=0.5, seed=1, is_frozen=is_frozen)
    table.given = read_item_vectors(path, VOCABULARY, 3)
    for size in sizes:
        table.grow(size)
    return table


@pytest.mark.parametrize("sizes", [(4,), (1, 2, 4), (2, 3, 4)])
def test_vectors_land_at_their_items_and_others_start_by_chance(tmp_path, sizes):
    found = given_table(write(tmp_path / "v.parquet"), *sizes).weight
    by_chance = GrowingEmbedding(3, std=0.5, seed=1)
    by_chance.grow(4)
    assert found[1].tolist() == VECTORS[30]
    assert found[3].tolist() == VECTORS[50]
    assert torch.equal(found[[0, 2]], by_chance.weight[[0, 2]])


def test_growing_leaves_what_was_learned(tmp_path):
    table = given_table(write(tmp_path / "v.parquet"), 2)
    with torch.no_grad():
        table.weight += 1
    table.grow(4)
    assert table.weight[1].tolist() == [5, 6, 7]
    assert table.weight[3].tolist() == VECTORS[50]


def test_frozen_rows_stay_frozen_as_the_table_grows(tmp_path):
    table = given_table(write(tmp_path / "v.parquet"), 2, 4, is_frozen=True)
    assert not table.weight.requires_grad
    assert table.weight[3].tolist() == VECTORS[50]


def test_a_stored_state_goes_on_with_the_vectors(tmp_path):
    """Restored at two items, the later ones still begin with theirs."""
    state = given_table(write(tmp_path / "v.parquet"), 2).state_dict()
    restored = given_table(tmp_path / "v.parquet", 2)
    restored.load_state_dict(state)
    restored.grow(4)
    assert restored.weight[3].tolist() == VECTORS[50]


def test_vectors_are_no_part_of_the_state():
    model = tiny_model()
    names = set(model.state_dict())
    model.inputs.items.given = object()
    assert set(model.state_dict()) == names


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)]
)
def test_lists_of_any_type_are_read(tmp_path, type_):
    found = read_item_vectors(write(tmp_path / "v.parquet", type_=type_), VOCABULARY, 3)
    by_row = dict(zip(found.rows.tolist(), found.vectors.tolist(), strict=True))
    assert by_row == {3: VECTORS[50], 1: VECTORS[30]}
    assert found.vectors.dtype == torch.float32


def test_ids_are_read_in_the_vocabularys_type(tmp_path):
    named = VOCABULARY.set_column(1, "value", VOCABULARY["value"].cast(pa.string()))
    found = read_item_vectors(write(tmp_path / "v.parquet"), named, 3)
    assert found.rows.tolist() == [3, 1]


NOTHING = {}


@pytest.mark.parametrize(
    ("vectors", "more", "complaint"),
    [
        ({50: [1.0, 2.0]}, {}, r"3 numbers in each, as model\.item_embedding_dim.*vectors of 2"),
        ({50: [1.0, 2.0, 3.0], 30: [1.0]}, {}, "vectors of 3, 1 numbers"),
        ({50: None, 30: [1.0, 2.0, 3.0]}, {}, "vectors of None, 3 numbers"),
        (NOTHING, {"values": pa.array([], pa.int64())}, "vectors of no numbers"),
        ({50: [1.0, None, 3.0]}, {}, "not finite"),
        ({50: [1.0, float("nan"), 3.0]}, {}, "not finite"),
        ({11: [9.0, 9.0, 9.0]}, {}, "found no item of the data set"),
        (VECTORS, {"values": [50, 30, 50]}, "an item's value comes twice"),
        (VECTORS, {"values": ["shoe", "hat", "bag"]}, "expected int64"),
        ({50: ["x"]}, {"type_": pa.list_(pa.string())}, "expected list"),
        ({50: 1.0}, {"type_": pa.float32()}, "expected list"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, vectors, more, complaint):
    path = write(tmp_path / "v.parquet", vectors, **more)
    with pytest.raises(ConfigError, match=complaint) as refusal:
        read_item_vectors(path, VOCABULARY, 3)
    assert f"model.pretrained_items: {path}" in str(refusal.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="the columns value, vector"):
        read_item_vectors(tmp_path / "nowhere.parquet", VOCABULARY, 3)
    (tmp_path / "noise.parquet").write_bytes(b"noise")
    with pytest.raises(ConfigError, match="the columns value, vector"):
        read_item_vectors(tmp_path / "noise.parquet", VOCABULARY, 3)
    pq.write_table(VOCABULARY, tmp_path / "others.parquet")
    with pytest.raises(ConfigError, match="vector"):
        read_item_vectors(tmp_path / "others.parquet", VOCABULARY, 3)
