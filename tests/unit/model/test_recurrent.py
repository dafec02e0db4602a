"""Recurrence and averages against a few lines of arithmetic."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.backbones import Body
from dayahead.model.recurrent import Average
from support.tiny_settings import model_config


def body_of(architecture, **changes):
    torch.manual_seed(0)
    config = model_config(architecture=architecture, d_model=4, **changes)
    return Body(config, causal=True, max_length=5)


@torch.no_grad()
def test_rnn_is_its_recurrence():
    body = body_of("rnn").eval()
    cell = body.network.cell
    inputs, state = torch.randn(2, 5, 4), torch.zeros(2, 4)
    hidden = body(inputs, torch.tensor([5, 5]))
    for step in range(5):
        state = torch.tanh(
            inputs[:, step] @ cell.weight_ih_l0.T
            + cell.bias_ih_l0
            + state @ cell.weight_hh_l0.T
            + cell.bias_hh_l0
        )
        torch.testing.assert_close(hidden[:, step], state)


@torch.no_grad()
def test_gru_is_its_recurrence():
    body = body_of("gru").eval()
    cell = body.network.cell
    inputs, state = torch.randn(2, 5, 4), torch.zeros(2, 4)
    hidden = body(inputs, torch.tensor([5, 5]))
    for step in range(5):
        from_input = (inputs[:, step] @ cell.weight_ih_l0.T + cell.bias_ih_l0).chunk(3, dim=1)
        from_state = (state @ cell.weight_hh_l0.T + cell.bias_hh_l0).chunk(3, dim=1)
        reset, update = (torch.sigmoid(from_input[k] + from_state[k]) for k in (0, 1))
        new = torch.tanh(from_input[2] + reset * from_state[2])
        state = (1 - update) * new + update * state
        torch.testing.assert_close(hidden[:, step], state)


@pytest.mark.parametrize("architecture", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_depth_is_as_asked(architecture, n_layer):
    assert body_of(architecture, n_layer=n_layer).network.cell.num_layers == n_layer


@pytest.mark.parametrize("architecture", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("n_layer", [1, 2])
def test_dropout_works_in_training_alone(architecture, n_layer):
    body = body_of(architecture, n_layer=n_layer, dropout=0.5)
    inputs, lengths = torch.randn(2, 5, 4), torch.tensor([5, 5])
    assert not torch.equal(body.train()(inputs, lengths), body(inputs, lengths))
    assert torch.equal(body.eval()(inputs, lengths), body(inputs, lengths))


def test_the_mean_of_the_events_so_far_by_hand():
    events = torch.tensor([[[2.0], [4.0], [9.0]]])
    means = Average()(events, torch.ones(1, 3).bool())
    assert means[0, :, 0].tolist() == [2, 3, 5]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_the_mean_is_that_of_each_prefix(n_rows, width, seed):
    events = torch.randn(n_rows, width, 3, generator=torch.Generator().manual_seed(seed))
    means = Average()(events, torch.ones(n_rows, width).bool())
    for n in range(1, width + 1):
        torch.testing.assert_close(means[:, n - 1], events[:, :n].mean(1))
