"""The proof finds what a network must not do, each fault in a network made for it."""

import pytest
import torch
from torch import nn

from dayahead.model.causality import Probe


class Says(nn.Module):
    """A network that is one expression of its inputs [B, L, D] and events [B, L]."""

    def __init__(self, expression):
        super().__init__()
        self.expression = expression

    def forward(self, inputs, is_event):
        return self.expression(inputs, is_event)


def past(inputs, is_event):
    return inputs.cumsum(1)


def both(inputs, is_event):
    events = inputs * is_event[..., None]
    return inputs + events.sum(1, keepdim=True)


def reading_padding(inputs, is_event):
    return inputs + inputs.sum(1, keepdim=True)


def one_step_ahead(inputs, is_event):
    return past(inputs, is_event) + 1e-3 * inputs.roll(-1, dims=1)


def only_the_last_two_leak(inputs, is_event):
    outputs = past(inputs, is_event)
    return torch.cat([outputs[:, :-2], outputs[:, -2:] + inputs[:, -1:]], dim=1)


def over_the_batch(inputs, is_event):
    return past(inputs, is_event) + inputs.mean((0, 1))


def by_width(inputs, is_event):
    return past(inputs, is_event) / inputs.shape[1]


def faults_of(expression, *, causal, max_length=7):
    return list(Probe(Says(expression), 3, max_length).faults(causal=causal))


@pytest.mark.parametrize("max_length", [2, 3, 20, 100])
def test_what_sees_what_it_must_has_no_fault(max_length):
    assert faults_of(past, causal=True, max_length=max_length) == []
    assert faults_of(both, causal=False, max_length=max_length) == []


@pytest.mark.parametrize("max_length", [2, 3, 20, 100])
@pytest.mark.parametrize(
    ("expression", "causal", "fault"),
    [
        (both, True, "it lets an event see a later one"),
        (one_step_ahead, True, "it lets an event see a later one"),
        (only_the_last_two_leak, True, "it lets an event see a later one"),
        (past, False, "it sees the past only"),
        (reading_padding, False, "it attends to padding"),
        (by_width, True, "depends on the others of the batch or on their length"),
    ],
)
def test_a_fault_is_found(expression, causal, fault, max_length):
    assert any(
        fault in found for found in faults_of(expression, causal=causal, max_length=max_length)
    )


def test_a_leak_between_sessions_is_found():
    assert "depends on the others of the batch" in faults_of(over_the_batch, causal=True)[-1]


@pytest.mark.parametrize(
    "expression",
    [
        lambda inputs, is_event: inputs[..., :1],
        lambda inputs, is_event: inputs[:, -1],
        lambda inputs, is_event: inputs / 0,
    ],
)
def test_what_writes_no_vectors_of_its_inputs_shape_is_found(expression):
    [fault] = faults_of(expression, causal=True)
    assert "[9, 7, 3] is expected" in fault


@pytest.mark.parametrize("is_training", [True, False])
def test_the_proof_leaves_the_network_as_it_was(is_training):
    network = Says(past).train(is_training)
    list(Probe(network, 3, 5).faults(causal=True))
    assert network.training == is_training
