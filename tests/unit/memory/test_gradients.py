"""Gradients of the head's loss: those of the whole batch, however they are computed."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from dayahead.memory.gate import Gate
from dayahead.memory.gradients import gradients_in_parts
from dayahead.memory.head import Head
from dayahead.memory.head_examples import Examples

ROWS = torch.arange(3, 40)


@pytest.fixture
def examples():
    dice = torch.Generator().manual_seed(1)
    features, context = torch.randn(50, 5, 3, generator=dice), torch.randn(50, 2, generator=dice)
    candidates = torch.ones(50, 5, dtype=torch.bool)
    candidates[:, -1] = False
    own = torch.zeros_like(candidates)
    own[:, 0] = True
    targets = torch.randint(4, (50,), generator=dice)
    return Examples(features, candidates, own, context, targets, torch.rand(50, generator=dice))


@pytest.fixture
def head():
    made = Head(3, 2, 8, seed=0, gate=Gate([0, 1], 100))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    return made


@pytest.fixture(params=[1, 2, 3])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def computed(head, examples, rows=ROWS):
    with gradients_in_parts(head) as gradients:
        loss = gradients(examples, rows)
    return loss, [parameter.grad.clone() for parameter in head.parameters()]


def test_they_are_those_of_the_weighted_loss(head, examples):
    loss, found = computed(head, examples)
    batch = examples.take(ROWS)
    scores = head(batch).masked_fill(~batch.is_candidate, -torch.inf)
    losses = cross_entropy(scores, batch.targets, reduction="none")
    wanted = (losses * batch.weights).sum() / batch.weights.sum()
    assert loss == pytest.approx(wanted.item())
    gradients = torch.autograd.grad(wanted, [*head.parameters()])
    torch.testing.assert_close(found, [*gradients], atol=1e-6, rtol=1e-5)


def test_threads_change_no_bit(head, examples, n_threads):
    loss, found = computed(head, examples)
    assert torch.get_num_threads() == n_threads
    torch.set_num_threads(1)
    alone, wanted = computed(head, examples)
    assert loss == alone
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_a_batch_may_have_fewer_rows_than_parts(head, examples, n_rows):
    _, found = computed(head, examples, rows=ROWS[:n_rows])
    assert all(gradient.isfinite().all() for gradient in found)
    assert any(gradient.any() for gradient in found)


def test_a_batch_without_weight_has_no_gradient(head, examples):
    weightless = replace(examples, weights=torch.zeros(50))
    loss, found = computed(head, weightless)
    assert loss == 0
    assert not any(gradient.any() for gradient in found)


def test_the_number_of_threads_is_restored_after_an_error(head, examples, n_threads):
    broken = replace(examples, targets=torch.full((50,), 99))
    with pytest.raises(IndexError):
        computed(head, broken)
    assert torch.get_num_threads() == n_threads
