"""Sessions in memory, their padded batches, and the order of sessions in an epoch."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.train.batches import CELLS, LoadedBatches, Sessions, shuffled_rows, sorted_rows

ITEMS = [[5, 6, 7], [8, 9], [2, 3, 4, 5]]
PRICES = [[0.5, 0.25, 1.0], [2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]

worlds = st.integers(1, 8)
batch_sizes = st.integers(1, 9)
seeds = st.integers(0, 2**63 - 1)
session_lengths = st.lists(st.integers(2, 20), min_size=1, max_size=40)


def table_of(items: list[list[int]], prices: list[list[float]]) -> pa.Table:
    return pa.table(
        {
            "session_id": [f"s{number}" for number in range(len(items))],
            "item_id": pa.array(items, pa.list_(pa.int32())),
            "price": pa.array(prices, pa.list_(pa.float32())),
        }
    )


def sessions_of(lengths: list[int]) -> Sessions:
    """Sessions in which no two events have the same item."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return Sessions(columns={"item_id": torch.arange(2, 2 + int(offsets[-1]))}, offsets=offsets)


def row_batches(kind: str, lengths: torch.Tensor, size: int, seed: int) -> list[torch.Tensor]:
    return (
        sorted_rows(lengths, size) if kind == "sorted" else shuffled_rows(lengths, size, seed=seed)
    )


class TestSessions:
    def test_list_columns_become_flat_tensors(self):
        sessions = Sessions.from_table(table_of(ITEMS, PRICES))
        assert list(sessions.columns) == ["item_id", "price"]
        assert sessions.columns["item_id"].tolist() == [5, 6, 7, 8, 9, 2, 3, 4, 5]
        assert sessions.columns["item_id"].dtype == torch.int64
        assert sessions.columns["price"].dtype == torch.float32
        assert sessions.offsets.tolist() == [0, 3, 5, 9]
        assert sessions.lengths.tolist() == [3, 2, 4]

    def test_chunked_and_sliced_tables_are_read(self):
        whole = table_of(ITEMS, PRICES)
        for table in (
            pa.concat_tables([whole, whole])[3:],
            pa.concat_tables([whole[:1], whole[1:]]),
        ):
            sessions = Sessions.from_table(table)
            assert sessions.columns["item_id"].tolist() == [5, 6, 7, 8, 9, 2, 3, 4, 5]
            assert sessions.offsets.tolist() == [0, 3, 5, 9]

    def test_an_empty_table_is_read(self):
        sessions = Sessions.from_table(table_of([], []))
        assert len(sessions) == 0
        assert sorted_rows(sessions.lengths, 4) == [] == shuffled_rows(sessions.lengths, 4, 0)

    def test_lists_of_unequal_lengths_raise(self):
        with pytest.raises(WindowError, match=r"column price: expected 9 events.*found 8"):
            Sessions.from_table(table_of(ITEMS, [*PRICES[:2], PRICES[2][:3]]))


class TestGather:
    def test_batches_are_padded_to_the_longest_session_of_the_global_batch(self):
        sessions = Sessions.from_table(table_of(ITEMS, PRICES))
        batch = sessions.gather(torch.tensor([1, 2, 0]), Rank(0, 1))
        assert batch.columns["item_id"].tolist() == [[8, 9, 0, 0], [2, 3, 4, 5], [5, 6, 7, 0]]
        assert batch.columns["price"].tolist() == [[2, 3, 0, 0], [4, 5, 6, 7], [0.5, 0.25, 1, 0]]
        assert batch.lengths.tolist() == [2, 4, 3]
        assert batch.sessions.tolist() == [1, 2, 0]
        assert batch.n_global == 3

    def test_a_process_without_sessions_gets_an_empty_row(self):
        batch = sessions_of([2, 3]).gather(torch.tensor([0]), Rank(2, 3))
        assert batch.without_empty_rows().columns["item_id"].shape == (0, 2)

    def test_batches_move_to_a_device(self):
        batch = sessions_of([2, 3]).gather(torch.tensor([0, 1]), Rank(0, 1))
        moved = batch.to(torch.device("meta"))
        assert moved.columns["item_id"].device.type == moved.lengths.device.type == "meta"
        assert moved.sessions.tolist() == [0, 1]

    @given(session_lengths, worlds, st.data())
    @settings(max_examples=50, deadline=None)
    def test_the_global_batch_does_not_depend_on_the_number_of_processes(
        self, lengths, world, data
    ):
        sessions = sessions_of(lengths)
        rows = torch.tensor(data.draw(st.permutations(range(len(lengths)))))
        whole = sessions.gather(rows, Rank(0, 1))
        parts = [sessions.gather(rows, Rank(rank, world)) for rank in range(world)]
        assert len({len(part.lengths) for part in parts}) == 1
        assert {part.n_global for part in parts} == {-(-len(rows) // world) * world}
        interleaved = {
            "items": torch.stack([part.columns["item_id"] for part in parts], 1).flatten(0, 1),
            "lengths": torch.stack([part.lengths for part in parts], 1).flatten(),
            "sessions": torch.stack([part.sessions for part in parts], 1).flatten(),
        }
        n = len(rows)
        assert torch.equal(whole.global_items, whole.columns["item_id"])
        assert all(torch.equal(part.global_items, interleaved["items"]) for part in parts)
        assert torch.equal(interleaved["items"][:n], whole.columns["item_id"])
        assert torch.equal(interleaved["lengths"][:n], whole.lengths)
        assert torch.equal(interleaved["sessions"][:n], whole.sessions)
        assert not interleaved["items"][n:].any()
        assert not interleaved["lengths"][n:].any()
        assert (interleaved["sessions"][n:] == -1).all()


class TestRowOrders:
    @given(st.sampled_from(["sorted", "shuffled"]), session_lengths, batch_sizes, seeds)
    @settings(max_examples=80, deadline=None)
    def test_every_session_is_in_one_batch_and_batches_are_full(self, kind, lengths, size, seed):
        plan = row_batches(kind, torch.tensor(lengths), size, seed)
        assert sorted(torch.cat(plan).tolist()) == list(range(len(lengths)))
        assert len(plan) == -(-len(lengths) // size)
        # At most one batch is short.
        assert sum(len(rows) < size for rows in plan) == (len(lengths) % size > 0)

    @given(session_lengths, batch_sizes)
    @settings(max_examples=50, deadline=None)
    def test_sorted_rows_are_stable_by_length(self, lengths, size):
        order = torch.cat(sorted_rows(torch.tensor(lengths), size)).tolist()
        assert order == sorted(range(len(lengths)), key=lambda row: (lengths[row], row))

    def test_shuffled_batches_mix_lengths_and_are_sorted_within(self):
        lengths = torch.arange(2, 66)
        for rows in shuffled_rows(lengths, 16, seed=7):
            within = lengths[rows].tolist()
            assert within == sorted(within)
            assert within[-1] - within[0] > 32


class TestMemoryBatches:
    @given(session_lengths, batch_sizes, worlds, seeds)
    @settings(max_examples=50, deadline=None)
    def test_all_processes_together_read_every_session_once(self, lengths, size, world, seed):
        sessions = sessions_of(lengths)
        plan = shuffled_rows(sessions.lengths, size, seed)
        of_ranks = [LoadedBatches(sessions, plan, Rank(rank, world)) for rank in range(world)]
        batches = [list(one) for one in of_ranks]
        assert {len(one) for one in batches} == {of_ranks[0].n_steps} == {-(-len(lengths) // size)}
        found = np.concatenate([batch.sessions.numpy() for one in batches for batch in one])
        assert sorted(found[found >= 0]) == list(range(len(lengths)))
        for batch in (batch for one in batches for batch in one):
            assert ((batch.sessions < 0) == (batch.lengths == 0)).all()

    @given(session_lengths, batch_sizes, seeds)
    @settings(max_examples=50, deadline=None)
    def test_counting_reads_the_same_sessions_in_order_in_larger_batches(self, lengths, size, seed):
        sessions = sessions_of(lengths)
        plan = shuffled_rows(sessions.lengths, size, seed)
        batches = LoadedBatches(sessions, plan, Rank(0, 1))
        counted = batches.counted()
        assert torch.equal(counted.every_row, batches.every_row)
        assert counted.n_steps == 1

    def test_batches_to_count_are_no_larger_than_memory_allows(self):
        sessions = sessions_of([2] * 30 + [CELLS // 8])
        batches = LoadedBatches(sessions, sorted_rows(sessions.lengths, 2), Rank(0, 1))
        assert [len(rows) for rows in batches.counted().rows] == [8, 8, 8, 7]

    def test_there_may_be_nothing_to_count(self):
        assert LoadedBatches(sessions_of([]), [], Rank(0, 1)).counted().rows == []
