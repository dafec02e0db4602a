"""Which rows of a table each process holds, and that a table in parts is the table."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.embeddings import CHUNK_ROWS, GrowingEmbedding, PretrainedRows
from support.tiny_settings import tiny_model

worlds = st.integers(1, 5)
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(sorted)


def tables(world, steps, given=None):
    """A table on each of so many processes, grown step by step."""
    found = []
    for rank in range(world):
        table = GrowingEmbedding(3, std=0.5, seed=1, shard=Shard(rank, world))
        table.pretrained = given
        for size in steps:
            table.grow(size)
        found.append(table)
    return found


@given(worlds, st.integers(0, 50), st.integers(0, 50))
def test_every_row_is_held_once_and_as_many_everywhere(world, begin, more):
    shards = [Shard(rank, world) for rank in range(world)]
    rows = [list(range(begin + more))[shard.local_slice(begin, begin + more)] for shard in shards]
    assert sorted(chain(*rows)) == list(range(begin, begin + more))
    for shard, own in zip(shards, rows, strict=True):
        assert [row % world for row in own] == [shard.rank] * len(own)
        assert shard.n_local(begin + more) - shard.n_local(begin) == len(own)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@given(worlds, sizes)
def test_grown_in_parts_the_rows_are_those_of_the_whole(world, steps):
    [whole] = tables(1, steps)
    for rank, part in enumerate(tables(world, steps)):
        assert torch.equal(part.weight, whole.weight[rank::world])
        assert part.n_rows == whole.n_rows == steps[-1]


@given(worlds, sizes)
def test_given_vectors_find_their_rows_in_every_part(world, steps):
    given_rows = PretrainedRows(torch.tensor([5, 0, 33]), torch.arange(9.0).view(3, 3))
    [whole] = tables(1, steps, given_rows)
    for rank, part in enumerate(tables(world, steps, given_rows)):
        assert torch.equal(part.weight, whole.weight[rank::world])


def test_rows_are_drawn_in_pieces_as_in_one():
    n_rows = CHUNK_ROWS + 10
    [whole] = tables(1, [n_rows])
    second = tables(2, [CHUNK_ROWS - 3, n_rows])[1]
    assert torch.equal(second.weight, whole.weight[1::2])


@given(worlds, st.lists(st.integers(0, 30), max_size=20))
def test_asked_rows_are_found_where_they_are_held(world, rows):
    table = torch.arange(31)
    asked = torch.tensor(rows, dtype=torch.int64)
    for rank in range(world):
        _, own = Shard(rank, world).local_indices(asked)
        assert table[rank::world][own].tolist() == [row for row in rows if row % world == rank]


def test_alone_nothing_crosses_over():
    table, rows = torch.randn(7, 2), torch.tensor([[1, 6], [0, 1]])
    assert torch.equal(WHOLE.lookup(table, rows), table[rows])
    assert torch.equal(WHOLE.lookup_scalars(table[:, 0], rows), table[rows][..., 0])
    assert torch.equal(WHOLE.mean(table, 7), table.mean(0))
    [every], n_of = WHOLE.all_gather(table)
    assert every is table
    assert WHOLE.send_back(table, n_of, [2])[0] is table
    assert tiny_model().sharded == frozenset()


def test_fewer_items_than_processes_are_refused():
    model = tiny_model()
    model.shard = Shard(0, 4)
    with pytest.raises(ConfigError, match=r"shard_items: 3 items cannot .* to 4 processes"):
        model.grow({"item_id": 3, "category": 3})
