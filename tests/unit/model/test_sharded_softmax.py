"""The softmax over rows that are shared out, where one process has them all.

Several processes are compared with one in tests/unit/training/test_sharing.py.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.sharded_softmax import shared_softmax_loss


def problem(n_targets, n_items, seed=0, scale=1.0):
    """States, table, bias and targets."""
    draw = torch.Generator().manual_seed(seed)
    shapes = (n_targets, 4), (n_items, 4), (n_items,)
    parts = [scale * torch.randn(shape, generator=draw) for shape in shapes]
    return *(part.requires_grad_() for part in parts), torch.randint(
        n_items, (n_targets,), generator=draw
    )


def dense(states, table, bias, targets):
    return cross_entropy(states @ table.T + bias, targets, reduction="sum")


def with_gradients(loss, *parts):
    return [loss.detach(), *torch.autograd.grad(3 * loss, parts)]


def far(parts, targets, n_rows):
    """How far loss and gradients are from the dense ones of float64, relatively."""
    found = with_gradients(shared_softmax_loss(*parts, targets, WHOLE, n_rows), *parts)
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = with_gradients(dense(*exact, targets), *exact)
    pairs = zip(found, wanted, strict=True)
    return max(float((one - other).norm() / other.norm().clamp(min=1)) for one, other in pairs)


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 50),
    st.sampled_from([1.0, 10.0]),
    st.integers(0, 99),
)
def test_loss_and_gradients_are_the_dense_ones(n_targets, n_items, n_rows, scale, seed):
    *parts, targets = problem(n_targets, n_items, seed, scale)
    assert far(parts, targets, n_rows) <= 1e-5


def test_scores_beyond_the_range_of_exp_are_no_matter():
    states, table, bias, targets = problem(5, 7)
    assert far([states, table, (bias + 1e4).detach().requires_grad_()], targets, 2) <= 1e-3


def test_no_targets_cost_nothing_and_reach_every_input():
    *parts, targets = problem(0, 7)
    loss, *gradients = with_gradients(shared_softmax_loss(*parts, targets, WHOLE, 2), *parts)
    assert loss == 0
    assert all(not gradient.any() for gradient in gradients)


def test_bfloat16_is_near_and_summed_in_float32():
    *parts, targets = problem(40, 30)
    halves = [part.detach().bfloat16().requires_grad_() for part in parts]
    assert shared_softmax_loss(*halves, targets, WHOLE, 8).dtype == torch.float32
    assert far(halves, targets, 8) <= 0.01


@pytest.mark.parametrize("world", [1, 2, 5])
def test_each_item_is_held_once_and_found(world):
    items = torch.tensor([7, 0, 4, 4, 11, 3])
    table = torch.arange(12)
    found = torch.full((6,), -1)
    for rank in range(world):
        held, places = Shard(rank, world).local_indices(items)
        assert (found[held] == -1).all()
        found[held] = table[rank::world][places]
    assert found.equal(items)
