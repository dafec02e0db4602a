"""Adagrad with momentum: by hand, against the formula and torch's, and rows without gradient."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dayahead.train.adagrad import Adagrad


def after_steps(start, gradients, rate, momentum):
    """The parameter after steps with these gradients, and its optimizer."""
    parameter = nn.Parameter(torch.as_tensor(start).clone())
    optimizer = Adagrad([parameter], lr=rate, momentum=momentum)
    for gradient in gradients:
        parameter.grad = torch.as_tensor(gradient).clone()
        optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.integers(0, 99),
)
def test_any_shape_equals_the_formula(shape, n_steps, momentum, seed):
    draw = np.random.default_rng(seed)
    start, *gradients = draw.normal(size=(n_steps + 1, *shape))
    weight, total, velocity = start.copy(), np.zeros(shape), np.zeros(shape)
    for gradient in gradients:
        total += gradient**2
        velocity = momentum * velocity - 0.2 * gradient / np.sqrt(total + 1e-6)
        weight += velocity
    found, _ = after_steps(start, gradients, 0.2, momentum)
    np.testing.assert_allclose(found, weight, rtol=1e-9, atol=1e-12)


def test_without_momentum_it_is_torchs_but_for_the_epsilon():
    start, *gradients = torch.randn(6, 5, 3, dtype=torch.float64)
    theirs = nn.Parameter(start.clone())
    optimizer = torch.optim.Adagrad([theirs], lr=0.1)
    for gradient in gradients:
        theirs.grad = gradient
        optimizer.step()
    found, state = after_steps(start, gradients, 0.1, 0.0)
    torch.testing.assert_close(found, theirs.detach(), rtol=1e-3, atol=1e-3)
    assert set(state) == {"sum"}


def test_a_row_without_gradient_keeps_its_value_and_state():
    first, second = torch.ones(3, 2), torch.ones(3, 2)
    second[1] = 0
    once, before = after_steps(torch.zeros(3, 2), [first], 0.1, 0.5)
    twice, after = after_steps(torch.zeros(3, 2), [first, second], 0.1, 0.5)
    assert torch.equal(once[1], twice[1])
    assert all(torch.equal(before[name][1], after[name][1]) for name in before)
    assert (twice[[0, 2]] < once[[0, 2]]).all()


def test_a_parameter_without_gradient_gets_no_state():
    parameter = nn.Parameter(torch.ones(2, 2))
    optimizer = Adagrad([parameter], lr=0.1, momentum=0.5)
    optimizer.step()
    assert not optimizer.state
    assert torch.equal(parameter, torch.ones(2, 2))
