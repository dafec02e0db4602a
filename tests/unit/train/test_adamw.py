"""AdamW with sparse gradients: its weights and moments are torch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import AdamW

from dayahead.train import adamw
from dayahead.train.adamw import CHUNK_ROWS, DeferredAdamW

N_ROWS, DIM = 12, 3
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
"""Deferred steps take the mean of eps, which is small next to gradients of .1 and more."""


class Pair:
    """The same table with a dense gradient by torch's AdamW, and with a sparse one by ours."""

    def __init__(self, weight_decay, n_rows=N_ROWS):
        generator = torch.Generator().manual_seed(n_rows)
        weights = torch.randn(n_rows, DIM, generator=generator, dtype=torch.float64)
        self.dense, self.sparse = nn.Parameter(weights), nn.Parameter(weights.clone())
        self.torchs = AdamW([{"params": [self.dense], "weight_decay": weight_decay}], lr=0.1)
        self.ours = DeferredAdamW([{"params": [self.sparse], "weight_decay": weight_decay}], lr=0.1)

    def step(self, rate, rows, values):
        """Take a step in which only these rows, which may repeat, have a gradient."""
        rows = torch.tensor(rows, dtype=torch.int64)
        self.ours.refresh(rows.unique())
        torch.testing.assert_close(self.sparse[rows], self.dense[rows], **CLOSE)
        shape = self.sparse.shape
        self.sparse.grad = torch.sparse_coo_tensor(rows[None], values, shape, check_invariants=True)
        self.dense.grad = self.sparse.grad.to_dense()
        for optimizer in (self.torchs, self.ours):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()

    def compare(self):
        self.ours.refresh()
        torch.testing.assert_close(self.sparse, self.dense, **CLOSE)
        found, expected = self.ours.state[self.sparse], self.torchs.state[self.dense]
        assert found.keys() == expected.keys()
        for key in found:
            torch.testing.assert_close(found[key], expected[key], rtol=1e-7, atol=1e-12)


def values_of(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(rows), DIM, generator=generator, dtype=torch.float64) + 0.1


one_step = st.tuples(
    st.floats(0, 0.5), st.lists(st.integers(0, N_ROWS - 1), max_size=6), st.integers(0, 2**31)
)


@given(st.lists(one_step, min_size=1, max_size=25), st.sampled_from([0.0, 0.5]))
def test_weights_and_moments_are_torchs_whatever_rows_the_steps_read(steps, weight_decay):
    pair = Pair(weight_decay)
    for rate, rows, seed in steps:
        pair.step(rate, rows, values_of(rows, seed))
    pair.compare()


@pytest.mark.parametrize("n_missed", [1, 10, 1_000])
def test_a_row_takes_all_steps_that_it_missed(n_missed):
    pair = Pair(weight_decay=0.5)
    pair.step(0.1, [4], values_of([4], 0))
    for step in range(n_missed):
        pair.step(0.1 * (1 - step / n_missed), [7], values_of([7], step))
    pair.compare()


@pytest.mark.parametrize(("size", "close"), [(1e-5, 1e-4), (1e-6, 1e-3), (1e-7, 0.03)])
@pytest.mark.parametrize("n_before", [0, 200])
def test_steps_by_small_gradients_are_torchs_too(size, close, n_before):
    """Next to such gradients eps counts, which AdamW weighs otherwise in each step."""
    pair = Pair(weight_decay=0.0)
    for step in range(n_before):
        pair.step(0.1, [7], values_of([7], step))
    before = pair.dense[4].clone()
    pair.step(0.1, [4], size * values_of([4], 0))
    for step in range(100):
        pair.step(0.1, [7], values_of([7], step))
    pair.ours.refresh()
    moved, expected = pair.sparse[4] - before, pair.dense[4] - before
    assert ((moved - expected).abs() <= close * expected.abs()).all()


def test_after_many_steps_all_rows_are_up_to_date(monkeypatch):
    monkeypatch.setattr(adamw, "MOST_STEPS", 5)
    pair = Pair(weight_decay=0.5)
    for step in range(13):
        pair.step(0.1, [step % 4], values_of([step % 4], step))
        assert len(pair.ours.waiting) == ((step + 1) % 5 > 0)
    pair.compare()


def test_a_table_of_more_than_a_chunk_is_refreshed_whole():
    pair = Pair(weight_decay=0.5, n_rows=CHUNK_ROWS + 5)
    first = list(range(CHUNK_ROWS + 5))
    pair.step(0.1, first, values_of(first, 0))
    pair.step(0.1, [0], values_of([0], 1))
    pair.compare()


def test_a_dense_gradient_after_sparse_ones_finds_every_row_up_to_date():
    pair = Pair(weight_decay=0.5)
    pair.step(0.1, [1, 2, 2], values_of([1, 2, 2], 0))
    pair.step(0.1, [2, 5], values_of([2, 5], 1))
    for table, optimizer in ((pair.dense, pair.torchs), (pair.sparse, pair.ours)):
        table.grad = torch.full_like(table, 0.3)
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(pair.sparse, pair.dense, **CLOSE)
    pair.step(0.1, [3], values_of([3], 2))
    pair.compare()
