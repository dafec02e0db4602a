"""Packed sessions: where events go, and that each session is trained on as if it were alone."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.backbones import Backbone, can_pack
from dayahead.model.packed_sessions import ROW_STEP, WIDTH_STEP, pack_sessions
from support.tiny_settings import model_config

WIDTH, LONGEST_ROW = 6, 10
PACKED = [
    *[("gpt2", "causal"), ("xlnet", "causal"), ("bert", "causal"), ("llama", "causal")],
    *[("xlnet", "bidirectional"), ("bert", "bidirectional"), ("albert", "bidirectional")],
    *[("electra", "bidirectional")],
]
PADDED = [
    *[("longformer", "bidirectional"), ("reformer", "causal"), ("bloom", "causal")],
    *[("mamba", "causal"), ("gru", "causal"), ("avg", "causal")],
]


@st.composite
def batches(draw):
    width = draw(st.integers(1, 9))
    lengths = torch.tensor(draw(st.lists(st.integers(1, width), min_size=1, max_size=30)))
    return lengths, torch.arange(width) < lengths[:, None]


def backbone_of(architecture, attention):
    torch.manual_seed(0)
    return Backbone(model_config(architecture=architecture, dropout=0.0), attention, WIDTH)


def inputs_of(n_sessions):
    return torch.randn(n_sessions, WIDTH, 16, generator=torch.Generator().manual_seed(0))


@given(batches())
def test_each_session_lies_in_one_row_in_order(batch):
    lengths, is_event = batch
    packed = pack_sessions(is_event, LONGEST_ROW)
    width = packed.sources.shape[1]
    taken = packed.indices[is_event].tolist()
    assert len(set(taken)) == len(taken)  # no two events in one place
    for own, n in zip(packed.indices.tolist(), lengths.tolist(), strict=True):
        row, start = divmod(own[0], width)
        assert own[:n] == list(range(own[0], own[0] + n))
        assert start + n <= width
        assert packed.steps[row, start : start + n].tolist() == list(range(n))


@pytest.mark.parametrize(("length", "longest_row", "wanted"), [(5, 9, 8), (5, 7, 7), (8, 9, 8)])
def test_rows_are_a_multiple_wide_unless_that_is_too_wide(length, longest_row, wanted):
    packed = pack_sessions(torch.ones(1, length, dtype=torch.bool), longest_row)
    assert wanted % WIDTH_STEP == 0 or wanted == longest_row
    assert packed.sources.shape == (ROW_STEP, wanted)


@given(batches())
def test_an_event_shares_its_session_with_no_other_event_or_padding(batch):
    lengths, is_event = batch
    packed = pack_sessions(is_event, LONGEST_ROW)
    shares = (~packed.is_other).sum(2).flatten()  # positions seen from each position
    assert torch.equal(shares[packed.indices[is_event]], lengths.repeat_interleave(lengths))


@given(batches())
def test_rows_are_few_and_their_number_a_multiple(batch):
    _, is_event = batch
    packed = pack_sessions(is_event, LONGEST_ROW)
    n_rows, width = packed.sources.shape
    held = packed.indices[is_event].div(width, rounding_mode="floor").bincount(minlength=n_rows)
    full = held[held > 0].tolist()
    assert all(one + other > width for one, other in combinations(full, 2))  # else one row does
    assert n_rows == -(-len(full) // ROW_STEP) * ROW_STEP


@given(batches())
def test_what_is_taken_is_what_was_packed(batch):
    _, is_event = batch
    packed = pack_sessions(is_event, LONGEST_ROW)
    values = torch.randn(is_event.shape)
    states = packed.pack(values)[..., None].requires_grad_()
    taken = packed.take(states, is_event)
    assert torch.equal(taken[:, 0], values[is_event])
    taken.sum().backward()
    wanted = torch.zeros(states.numel()).index_fill(0, packed.indices[is_event], 1)
    assert torch.equal(states.grad.flatten(), wanted)  # padding gets none


def packed_states(backbone, inputs, lengths, is_event):
    packed = backbone.pack(lengths, is_event)
    return packed.take(backbone.forward_packed(packed.pack(inputs), packed), is_event)


@pytest.mark.parametrize(("architecture", "attention"), PACKED)
def test_packed_sessions_have_the_states_and_gradients_of_padded_ones(architecture, attention):
    lengths = torch.tensor([6, 1, 3, 2, 4, 1, 5])
    is_event = torch.arange(WIDTH) < lengths[:, None]
    backbone = backbone_of(architecture, attention).train()
    assert backbone.packs_on(torch.device("cpu"))
    found = []
    for packs in (True, False):
        inputs = inputs_of(len(lengths)).requires_grad_()
        if packs:
            states = packed_states(backbone, inputs, lengths, is_event)
        else:
            states = backbone(inputs, lengths)[is_event]
        learned = [each for each in backbone.parameters() if each.requires_grad]
        gradients = torch.autograd.grad(states.pow(3).sum(), [inputs, *learned])
        found.append([states, *gradients])
    for packed, padded in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-3, atol=1e-4)
    assert (found[0][1][~is_event] == 0).all()  # nothing reaches padding


@pytest.mark.parametrize(("architecture", "attention"), PACKED)
def test_training_packs_on_a_cpu_and_evaluation_does_not(architecture, attention):
    backbone = backbone_of(architecture, attention)
    assert not backbone.eval().packs_on(torch.device("cpu"))
    assert backbone.train().packs_on(torch.device("cpu"))
    assert not backbone.packs_on(torch.device("cuda"))


@pytest.mark.parametrize(("architecture", "attention"), PADDED)
def test_others_read_padded_sessions(architecture, attention):
    assert not backbone_of(architecture, attention).train().packs_on(torch.device("cpu"))


def test_the_check_finds_a_row_whose_sessions_see_each_other(monkeypatch):
    network = backbone_of("gpt2", "causal").network
    assert can_pack(network, 16, WIDTH)

    def seeing_all(is_event, longest_row):
        packed = pack_sessions(is_event, longest_row)
        return replace(packed, is_other=torch.zeros_like(packed.is_other))

    monkeypatch.setattr("dayahead.model.backbones.pack_sessions", seeing_all)
    assert not can_pack(network, 16, WIDTH)
    assert network.training
