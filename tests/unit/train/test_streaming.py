"""Batches streamed from window files equal those of memory."""

import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.train.batches import (
    Batch,
    LoadedBatches,
    Sessions,
    shuffled_rows,
    sorted_rows,
)
from dayahead.train.streaming import Batches, StreamedBatches

COLUMNS = ("item_id", "price")
N = 300


def window_table(n: int = N, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], rng.integers(2, 21, n).cumsum()]).astype(np.int32)

    def lists(values: np.ndarray) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))

    n_events = offsets[-1]
    return pa.table(
        {
            "session_id": [f"{seed}-{number}" for number in range(n)],
            "item_id": lists(rng.integers(2, 5000, n_events).astype(np.int32)),
            "event_time": lists(np.zeros(n_events, "datetime64[us]")),
            "price": lists(rng.normal(size=n_events).astype(np.float32)),
        }
    )


def write(folder: Path, role: str, table: pa.Table, rows_per_group: int) -> Path:
    path = folder / f"session_start_date=2019-10-01-{role}.parquet"
    pq.write_table(table, path, row_group_size=rows_per_group)
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return write(tmp_path, "train", window_table(), rows_per_group=70)


@pytest.fixture
def streamed(path) -> StreamedBatches:
    """Buffers of 96 sessions over row groups of 70."""
    return StreamedBatches((path,), COLUMNS, 16, Rank(0, 1), buffer=96)


def sessions_in(batches: Batches) -> list[int]:
    found = torch.cat([batch.sessions for batch in batches]).tolist()
    return [session for session in found if session >= 0]


def assert_equal(found: Batches, expected: Batches) -> None:
    assert found.n_steps == expected.n_steps
    for ours, theirs in zip(found, expected, strict=True):
        assert_same_rows(ours, theirs)


def assert_same_rows(ours: Batch, theirs: Batch) -> None:
    assert ours.columns.keys() == theirs.columns.keys()
    for name, values in ours.columns.items():
        assert values.dtype == theirs.columns[name].dtype
        assert torch.equal(values, theirs.columns[name])
    assert torch.equal(ours.lengths, theirs.lengths)
    assert torch.equal(ours.sessions, theirs.sessions)
    assert (ours.rank, ours.n_global) == (theirs.rank, theirs.n_global)


def in_memory(table: pa.Table) -> Sessions:
    return Sessions.from_table(table.select(list(COLUMNS)))


@pytest.mark.parametrize("rank", [Rank(0, 1), Rank(0, 3), Rank(2, 3)])
def test_with_a_buffer_as_large_as_the_window_batches_equal_those_of_memory(streamed, rank):
    sessions = in_memory(window_table())
    sequential = replace(streamed, rank=rank, buffer=N)
    plan = sorted_rows(sessions.lengths, 16)
    assert_equal(sequential, LoadedBatches(sessions, plan, rank))
    shuffled = replace(sequential, seed=11)
    plan = shuffled_rows(sessions.lengths, 16, seed=11)
    assert_equal(shuffled, LoadedBatches(sessions, plan, rank))


@pytest.mark.parametrize(("buffer", "n_held"), [(96, 96), (1, 16)])
def test_without_shuffling_each_buffer_makes_the_batches_of_memory(streamed, buffer, n_held):
    """A buffer holds whole batches."""
    sessions = in_memory(window_table())
    plan = [
        start + rows
        for start in range(0, N, n_held)
        for rows in sorted_rows(sessions.lengths[start : start + n_held], 16)
    ]
    batches = replace(streamed, buffer=buffer)
    assert_equal(batches, LoadedBatches(sessions, plan, Rank(0, 1)))


@pytest.mark.parametrize("seed", [None, 4, 2**63 - 1])
def test_every_session_is_read_once_with_its_own_content(streamed, seed):
    batches = replace(streamed, seed=seed)
    sessions = in_memory(window_table())
    assert sorted(sessions_in(batches)) == list(range(N))
    assert sum(1 for _ in batches) == batches.n_steps == -(-N // 16)
    for batch in batches:
        assert_same_rows(batch, sessions.gather(batch.sessions, Rank(0, 1)))


def test_the_order_depends_on_the_seed_alone(streamed):
    np.random.seed(1)
    one = sessions_in(replace(streamed, seed=4))
    np.random.seed(2)
    assert sessions_in(replace(streamed, seed=4)) == one
    assert sessions_in(replace(streamed, seed=5)) != one


def test_reading_does_not_change_the_global_random_states(streamed):
    numpy_state, torch_state = np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert len(sessions_in(replace(streamed, seed=4))) == N
    assert np.random.get_state()[1].tolist() == numpy_state
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_a_shuffled_buffer_samples_the_whole_window(streamed):
    first = sessions_in(replace(streamed, seed=4))[:96]
    assert max(first) - min(first) > N / 2


def test_batches_can_be_iterated_twice(streamed):
    batches = replace(streamed, seed=4)
    assert_equal(batches, batches)


def test_several_files_are_one_stream_in_their_order(streamed, tmp_path):
    tables = [window_table(90, seed) for seed in (2, 10)]
    paths = [write(tmp_path, f"part{i}", t, 40) for i, t in zip((2, 10), tables, strict=True)]
    empty = write(tmp_path, "valid", window_table(0), 40)
    batches = replace(streamed, paths=(paths[0], empty, paths[1]), buffer=180)
    sessions = in_memory(pa.concat_tables(tables))
    plan = sorted_rows(sessions.lengths, 16)
    assert_equal(batches, LoadedBatches(sessions, plan, Rank(0, 1)))


def test_sessions_are_read_again_in_the_order_wanted(streamed, tmp_path):
    more = write(tmp_path, "more", window_table(90, 2), 40)
    rows = torch.tensor([N + 80, 3, 71, 3, 69, N])
    found = replace(streamed, paths=(*streamed.paths, more)).read_rows(rows)
    whole = in_memory(pa.concat_tables([window_table(), window_table(90, 2)]))
    assert_same_rows(found.gather(torch.arange(6), Rank(0, 1)), again(whole, rows))


def again(sessions: Sessions, rows: torch.Tensor) -> Batch:
    """Some sessions, numbered from 0."""
    return replace(sessions.gather(rows, Rank(0, 1)), sessions=torch.arange(len(rows)))


def test_a_counted_pass_reads_sessions_by_their_place_in_it(streamed):
    counted = replace(streamed, seed=4).counted()
    first, *_ = counted
    assert sorted(counted.every_row.tolist()) == list(range(N))
    [(columns, lengths)] = counted.read(np.array([5, 2]), is_held=True)
    assert torch.equal(lengths, first.lengths[[5, 2]])
    assert torch.equal(columns["item_id"], first.columns["item_id"][[5, 2], : lengths.max()])
    assert list(counted.read(np.array([], np.int64), is_held=False)) == []
    rows = counted.every_row[[2, 2, 5]]
    expected = in_memory(window_table()).gather(rows, Rank(0, 1))
    assert torch.equal(
        counted.gather(torch.tensor([2, 2, 5])).columns["item_id"], expected.columns["item_id"]
    )


@pytest.mark.parametrize("seed", [None, 4])
def test_a_pass_over_some_rows_has_these_alone(streamed, seed):
    wanted = torch.arange(1, N, 3)
    batches = replace(streamed, seed=seed).among(wanted)
    assert sorted(sessions_in(batches)) == wanted.tolist()
    assert sum(1 for _ in batches) == batches.n_steps == -(-len(wanted) // 16)
    sessions = in_memory(window_table())
    for batch in batches:
        assert_same_rows(batch, sessions.gather(batch.sessions, Rank(0, 1)))


def test_a_window_without_sessions_has_no_steps(streamed, tmp_path):
    empty = replace(streamed, paths=(write(tmp_path, "valid", window_table(0), 40),), seed=1)
    assert empty.n_steps == 0
    assert list(empty) == []


def test_closing_the_iterator_ends_its_thread(streamed):
    before = threading.active_count()
    batches = iter(replace(streamed, seed=4))
    assert len(list(islice(batches, 2))) == 2
    batches.close()
    assert threading.active_count() == before


def test_a_missing_file_raises(streamed, tmp_path):
    with pytest.raises(WindowError, match=r"gone.parquet: not readable.*dvc repro -f preprocess"):
        _ = replace(streamed, paths=(tmp_path / "gone.parquet",)).n_steps


def test_a_missing_column_raises(streamed, path):
    with pytest.raises(WindowError, match=f"{path.name}: no column age; run"):
        next(iter(replace(streamed, columns=("item_id", "age"))))


def test_a_damaged_row_group_raises(streamed, path):
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)  # the first pages; the footer still reads
    path.write_bytes(content)
    with pytest.raises(WindowError, match=f"{path.name}: not readable"):
        list(streamed)
