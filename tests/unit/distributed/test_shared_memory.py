"""Collectives through shared memory exchange what those of torch do."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.files import read_json
from dayahead.distributed import shared_memory
from dayahead.distributed.barrier import SharedFile
from dayahead.distributed.launch import run_processes
from dayahead.distributed.shared_memory import SharedMemory, _Buffer, _new_file
from support.barriers import barriers
from support.tiny_settings import compute_config
from support.worker_collectives import compare_with_torch, share_with_one_that_cannot

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32)
dtypes = st.sampled_from(DTYPES)
shapes = st.sampled_from([(), (3,), (2, 5)])
world_sizes = st.integers(1, 4)


def on_every_rank(world_size, work):
    """What `work` returns for each rank's collectives; ranks are threads."""
    ranks = []
    with ExitStack() as stack:
        files = [
            [SharedFile.of(stack.enter_context(_new_file())) for _ in range(world_size)]
            for _ in range(2)
        ]
        for rank, barrier in enumerate(barriers([os.getpid()] * world_size)):
            turns = [[_Buffer(file.open("r+")) for file in turn] for turn in files]
            ranks.append(SharedMemory(rank, turns, barrier))
    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(work, ranks))


def numbers(seed, n, shape, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-100, 100, (n, *shape), generator=generator).to(dtype)


@given(st.data(), world_sizes, shapes, dtypes)
@settings(deadline=None)
def test_all_to_all_delivers_to_each_rank_its_values(data, world_size, shape, dtype):
    sizes = st.lists(st.integers(0, 5), min_size=world_size, max_size=world_size)
    sent = data.draw(st.lists(sizes, min_size=world_size, max_size=world_size))
    values = [numbers(rank, sum(each), shape, dtype) for rank, each in enumerate(sent)]
    found = on_every_rank(
        world_size, lambda memory: memory.all_to_all(values[memory.rank], sent[memory.rank])
    )
    parts = [each.split(n) for each, n in zip(values, sent, strict=True)]
    for rank, (received, n_of) in enumerate(found):
        assert n_of == [each[rank] for each in sent]
        assert received.equal(torch.cat([of_rank[rank] for of_rank in parts]))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), shapes, dtypes)
@settings(deadline=None)
def test_all_gather_concatenates_unequal_lengths(n_of, shape, dtype):
    values = [numbers(rank, n, shape, dtype) for rank, n in enumerate(n_of)]
    for found, lengths in on_every_rank(len(n_of), lambda m: m.all_gather(values[m.rank])):
        assert lengths == n_of
        assert found.equal(torch.cat(values))


@given(world_sizes, st.sampled_from([1, 2, 3, 7, 50]), dtypes, st.booleans())
@settings(deadline=None)
def test_all_reduce_sums_in_pieces(world_size, n, dtype, is_small):
    values = [numbers(rank, n, (2,), dtype) for rank in range(world_size)]
    wanted = torch.stack(values).sum(0).to(dtype)

    def reduce(memory):
        own = values[memory.rank].clone()
        memory.all_reduce(own)
        return own

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_memory, "SMALL", 1000 if is_small else 0)
        patch.setattr(shared_memory, "PIECE", 11)
        assert all(found.equal(wanted) for found in on_every_rank(world_size, reduce))


def test_later_and_larger_values_replace_earlier_ones():
    sizes = [3, 10, 2, 50_000, 1, 200_000, 4]

    def gather(memory):
        return [
            memory.all_gather(numbers(memory.rank + n, n, (2,), torch.float32))[0] for n in sizes
        ]

    for found in on_every_rank(3, gather):
        for values, n in zip(found, sizes, strict=True):
            of_ranks = [numbers(rank + n, n, (2,), torch.float32) for rank in range(3)]
            assert values.equal(torch.cat(of_ranks))


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [2, 3])
def test_processes_get_what_torch_gives_them(n_processes, tmp_path):
    run_processes(compare_with_torch, compute_config(processes=n_processes), tmp_path)
    for rank in range(n_processes):
        assert set(read_json(tmp_path / f"{rank}.json").values()) == {True}


@pytest.mark.slow
def test_all_do_without_if_one_cannot_open_the_files_of_others(tmp_path):
    run_processes(share_with_one_that_cannot, compute_config(processes=3), tmp_path)
    assert [read_json(tmp_path / f"{rank}.json") for rank in range(3)] == [[False, True]] * 3
