"""Growing tables: initial rows do not depend on when they are added; pretrained item vectors."""

import time
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE
from dayahead.model import embeddings
from dayahead.model.embeddings import (
    BLOCK_ROWS,
    GrowingEmbedding,
    initial_rows,
    item_vectors_of_table,
    read_item_vectors,
    with_rows,
)
from dayahead.windows.items import ItemTable
from support.listed_items import VECTOR, Row, table_of
from support.tiny_settings import tiny_model
from support.window_folders import day


def grown(*sizes, seed=1, dim=5):
    table = GrowingEmbedding(dim, std=0.5, seed=seed)
    for size in sizes:
        table.grow(size)
    return table


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 50))
def test_initial_rows_do_not_depend_on_the_steps_of_growth(sizes, n_per_block):
    with patch.object(embeddings, "BLOCK_ROWS", n_per_block):
        assert torch.equal(grown(*sizes).weight, grown(max(sizes)).weight)


def test_no_two_blocks_of_rows_are_equal():
    assert len(grown(2 * BLOCK_ROWS + 3, dim=2).weight.unique(dim=0)) == 2 * BLOCK_ROWS + 3


def test_rows_far_back_are_drawn_without_those_before_them():
    n_held, start = 10_000_000, time.thread_time()
    rows = initial_rows(n_held, n_held + 1000, dim=512, std=1.0, seed=1, shard=WHOLE)
    assert time.thread_time() - start < 1.0
    assert rows.shape == (1000, 512)


def test_initial_rows_depend_on_the_seed_and_have_the_configured_std():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, other = grown(5000, seed=1).weight, grown(5000, seed=2).weight
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first, other)
    assert first.std().item() == pytest.approx(0.5, rel=0.02)
    assert first.mean().item() == pytest.approx(0, abs=0.02)
    assert len(first.unique(dim=0)) == 5000


def test_tables_of_one_model_start_from_different_rows():
    model = tiny_model(tie_weights=False)
    assert not torch.equal(model.inputs.items.weight, model.output_items.weight)


def test_growing_again_copies_no_row():
    table = grown(80)
    room = table.weight.untyped_storage().nbytes()
    assert room == 90 * 5 * 4
    for size in (81, 90):
        before = table.weight.data_ptr()
        table.grow(size)
        assert table.weight.data_ptr() == before
    table.grow(91)
    assert table.weight.data_ptr() != before
    assert torch.equal(table.weight, grown(91).weight)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 30), st.sampled_from([(), (3,)]))
def test_with_rows_begins_with_the_rows_held(n_held, n_room, more, shape):
    held = torch.randn(n_held + n_room, *shape)[:n_held]
    found = with_rows(held, n_held + more)
    assert found.shape == (n_held + more, *shape)
    assert found.is_contiguous()
    assert torch.equal(found[:n_held], held)


def test_the_unknown_vector_starts_as_random_as_a_row():
    """Layer norms magnify the gradient of a zero vector without bound."""
    table = GrowingEmbedding(1000, 0.02, seed=1)
    assert table.unknown.std().item() == pytest.approx(0.02, rel=0.1)
    start = table.unknown.clone()
    table.grow(2)
    assert not torch.equal(table.unknown, table.weight[0])
    assert torch.equal(table.unknown, start)
    assert torch.equal(GrowingEmbedding(1000, 0.02, seed=1).unknown, start)
    assert not torch.equal(GrowingEmbedding(1000, 0.02, seed=2).unknown, start)


def test_lookups_of_padding_unknown_held_and_not_yet_held():
    table = grown(3)
    with torch.no_grad():
        table.unknown.fill_(7)
    found = table(torch.tensor([[0, 1, 2, 4, 5, 99]]))[0]
    assert found[0].eq(0).all()
    assert found[1].eq(7).all()
    assert torch.equal(found[2], table.weight[0])
    assert torch.equal(found[3], table.weight[2])
    assert found[4:].eq(7).all()


def test_only_rows_looked_up_learn():
    table = grown(3)
    table(torch.tensor([[0, 1, 3, 9]])).sum().backward()
    assert table.weight.grad.sum(1).tolist() == [0, 5, 0]
    assert table.unknown.grad.tolist() == [2] * 5


VOCABULARY = pa.table(
    {"index": pa.array([2, 3, 4, 5], pa.int32()), "value": pa.array([70, 30, 90, 50], pa.int64())}
)
VECTORS = {50: [1.0, 2.0, 3.0], 11: [9.0, 9.0, 9.0], 30: [4.0, 5.0, 6.0]}
"""Of two items of the vocabulary and one outside, in another order."""


def write(path, vectors=VECTORS, type_=None, values=None):
    values = pa.array(values if values is not None else list(vectors))
    lists = pa.array(list(vectors.values()), type_ or pa.list_(pa.float32()))
    pq.write_table(pa.table({"value": values, "vector": lists}), path)
    return path


def pretrained_table(path, *sizes, is_frozen=False):
    table = GrowingEmbedding(3, std=0.5, seed=1, is_frozen=is_frozen)
    table.pretrained = read_item_vectors(path, VOCABULARY, 3)
    for size in sizes:
        table.grow(size)
    return table


@pytest.mark.parametrize("sizes", [(4,), (1, 2, 4), (2, 3, 4)])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_pretrained_rows_are_those_of_their_items_and_others_random(tmp_path, sizes, is_frozen):
    table = pretrained_table(write(tmp_path / "v.parquet"), *sizes, is_frozen=is_frozen)
    assert table.weight[1].tolist() == VECTORS[30]
    assert table.weight[3].tolist() == VECTORS[50]
    assert torch.equal(table.weight[[0, 2]], grown(4, dim=3).weight[[0, 2]])
    assert table.weight.requires_grad != is_frozen


def test_a_restored_table_grows_by_pretrained_rows(tmp_path):
    table = pretrained_table(write(tmp_path / "v.parquet"), 2)
    with torch.no_grad():
        table.weight += 1
    restored = pretrained_table(tmp_path / "v.parquet", 2)
    restored.load_state_dict(table.state_dict())
    restored.grow(4)
    assert restored.weight[1].tolist() == [5, 6, 7]
    assert restored.weight[3].tolist() == VECTORS[50]


def test_pretrained_vectors_are_not_in_the_state():
    model = tiny_model()
    names = set(model.state_dict())
    model.inputs.items.pretrained = object()
    assert set(model.state_dict()) == names


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)]
)
def test_lists_of_any_type_are_read(tmp_path, type_):
    found = read_item_vectors(write(tmp_path / "v.parquet", type_=type_), VOCABULARY, 3)
    by_row = dict(zip(found.rows.tolist(), found.vectors.tolist(), strict=True))
    assert by_row == {3: VECTORS[50], 1: VECTORS[30]}
    assert found.vectors.dtype == torch.float32


def test_ids_are_cast_to_the_vocabularys_type(tmp_path):
    strings = VOCABULARY.set_column(1, "value", VOCABULARY["value"].cast(pa.string()))
    found = read_item_vectors(write(tmp_path / "v.parquet"), strings, 3)
    assert found.rows.tolist() == [3, 1]


def test_a_vector_that_is_listed_after_its_item_is_drawn_is_not_read():
    x, y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    rows = [Row(1, x), Row(2, y, day=1), Row(3, y, day=1), Row(4)]
    table = ItemTable(table_of(rows, [2, 3, 4, 5]))
    drawn_at = [day(0), day(0), day(1), day(0)]
    found = item_vectors_of_table(table, VECTOR, drawn_at, 3)
    assert found.rows.tolist() == [0, 2]  # the fourth has zeros, no vector
    assert found.vectors.tolist() == [[*x], [*y]]


@pytest.mark.parametrize(
    ("vectors", "more", "message"),
    [
        (
            {50: [1.0, 2.0]},
            {},
            r"3 numbers in each vector \(model\.item_embedding_dim.*vectors of 2",
        ),
        ({50: [1.0, 2.0, 3.0], 30: [1.0]}, {}, "vectors of 3, 1 numbers"),
        ({50: None, 30: [1.0, 2.0, 3.0]}, {}, "vectors of None, 3 numbers"),
        ({}, {"values": pa.array([], pa.int64())}, "vectors of no numbers"),
        ({50: [1.0, None, 3.0]}, {}, "finite numbers, found"),
        ({50: [1.0, float("nan"), 3.0]}, {}, "finite numbers, found"),
        ({11: [9.0, 9.0, 9.0]}, {}, "found no item of the data set"),
        (VECTORS, {"values": [50, 30, 50]}, "found an item's value twice"),
        (VECTORS, {"values": [50, None, 30]}, "column value, found 1 of 3 rows without one"),
        (VECTORS, {"values": ["shoe", "hat", "bag"]}, r"value \(int64\)"),
        ({50: ["x"]}, {"type_": pa.list_(pa.string())}, r"vector \(list<item: float>\)"),
        ({50: 1.0}, {"type_": pa.float32()}, r"vector \(list<item: float>\)"),
    ],
)
def test_invalid_files_of_vectors_are_rejected(tmp_path, vectors, more, message):
    path = write(tmp_path / "v.parquet", vectors, **more)
    with pytest.raises(ConfigError, match=message) as error:
        read_item_vectors(path, VOCABULARY, 3)
    assert f"model.pretrained_items: {path}" in str(error.value)


def test_unreadable_files_of_vectors_are_rejected(tmp_path):
    (tmp_path / "noise.parquet").write_bytes(b"noise")
    pq.write_table(VOCABULARY, tmp_path / "others.parquet")
    for name in ("nowhere", "noise", "others"):
        with pytest.raises(ConfigError, match=r"the columns value \(int64\), vector \("):
            read_item_vectors(tmp_path / f"{name}.parquet", VOCABULARY, 3)
