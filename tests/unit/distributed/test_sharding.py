"""Which rows of a table each process holds, and that sharded tables are slices of the whole."""

from itertools import chain
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model import embeddings
from dayahead.model.embeddings import GrowingEmbedding, PretrainedRows
from support.tiny_settings import tiny_model

world_sizes = st.integers(1, 5)
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(sorted)


def tables(world_size, steps, pretrained=None):
    """A table on each of so many ranks, grown step by step."""
    found = []
    for rank in range(world_size):
        table = GrowingEmbedding(3, std=0.5, seed=1, shard=Shard(rank, world_size))
        table.pretrained = pretrained
        for size in steps:
            table.grow(size)
        found.append(table)
    return found


@given(world_sizes, st.integers(0, 50), st.integers(0, 50))
def test_every_row_is_held_once_and_counts_are_balanced(world_size, begin, more):
    shards = [Shard(rank, world_size) for rank in range(world_size)]
    rows = [list(range(begin + more))[shard.local_slice(begin, begin + more)] for shard in shards]
    assert sorted(chain(*rows)) == list(range(begin, begin + more))
    for shard, local in zip(shards, rows, strict=True):
        assert [row % world_size for row in local] == [shard.rank] * len(local)
        assert shard.n_local(begin + more) - shard.n_local(begin) == len(local)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@given(world_sizes, sizes, st.booleans(), st.integers(1, 50))
def test_sharded_tables_grow_to_the_rows_of_the_whole(
    world_size, steps, is_pretrained, n_per_block
):
    rows = PretrainedRows(torch.tensor([5, 0, 33]), torch.arange(9.0).view(3, 3))
    pretrained = rows if is_pretrained else None
    with patch.object(embeddings, "BLOCK_ROWS", n_per_block):
        [whole], every = (tables(n, steps, pretrained) for n in (1, world_size))
    for rank, sharded in enumerate(every):
        assert torch.equal(sharded.weight, whole.weight[rank::world_size])
        assert sharded.n_rows == whole.n_rows == steps[-1]


@given(world_sizes, st.lists(st.integers(0, 30), max_size=20))
def test_local_indices_find_the_rows_held_here(world_size, rows):
    table = torch.arange(31)
    for rank in range(world_size):
        held, local = Shard(rank, world_size).local_indices(torch.tensor(rows, dtype=torch.int64))
        expected = [row for row in rows if row % world_size == rank]
        assert table[rank::world_size][local].tolist() == expected
        assert [rows[index] for index in held] == expected


def test_a_single_process_exchanges_nothing():
    table, rows = torch.randn(7, 2), torch.tensor([[1, 6], [0, 1]])
    assert Shard.create(Rank(0, 1)) is WHOLE
    assert torch.equal(WHOLE.lookup(table, rows), table[rows])
    assert torch.equal(WHOLE.lookup_scalars(table[:, 0], rows), table[rows][..., 0])
    assert torch.equal(WHOLE.mean(table, 7), table.mean(0))
    [every], n_of = WHOLE.all_gather(table)
    assert every is table
    assert WHOLE.send_back(table, n_of, [2])[0] is table
    assert tiny_model().sharded == frozenset()


def test_fewer_items_than_processes_raise():
    model = tiny_model()
    model.shard = Shard(0, 4)
    with pytest.raises(ConfigError, match=r"shard_items: 3 items cannot .* to 4 processes"):
        model.grow({"item_id": 3, "category": 3})
