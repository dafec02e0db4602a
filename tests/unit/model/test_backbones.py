"""Backbones: what each position sees, what is frozen, what is rejected; recurrence by hand."""

import re
from functools import lru_cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dayahead.config.baselines import NAMED_TRANSFORMERS, OWN_NETWORKS
from dayahead.core.errors import ConfigError
from dayahead.model.backbones import (
    Average,
    Backbone,
    receptive_field_error,
)
from support.backbones import (
    NAMED,
    OTHER_TRANSFORMERS,
    PAIRS,
    REJECTED,
    WITHOUT_WEIGHTS,
    mark_slow,
)
from support.tiny_settings import model_config

LEARNING = [name for name in (*NAMED, *OTHER_TRANSFORMERS) if name != "avg"]
every_pair = pytest.mark.parametrize(("architecture", "task"), mark_slow(PAIRS))
HAS_AVX512 = torch.cpu.get_capabilities().get("avx512_f", False)
SHIFTS_ALL_SCORES = re.compile(r"\bk(ey|_proj|_lin)\.bias")
"""A key's bias, which a softmax ignores: its gradient is zero but for rounding."""


def built(architecture, task, **changes):
    torch.manual_seed(0)
    config = model_config(architecture=architecture, **changes)
    return Backbone(config, "causal" if task == "clm" else "bidirectional", 6).eval()


backbone_of = lru_cache(built)


def inputs_of(n_sessions=3, seed=0):
    return torch.randn(n_sessions, 6, 16, generator=torch.Generator().manual_seed(seed))


def test_every_named_architecture_is_tested():
    assert set(NAMED) == {*NAMED_TRANSFORMERS, *OWN_NETWORKS}


@every_pair
@pytest.mark.parametrize("split", [1, 3, 5])
def test_a_causal_backbone_sees_no_later_event_and_a_bidirectional_one_all(
    architecture, task, split
):
    backbone, inputs, lengths = backbone_of(architecture, task), inputs_of(), torch.full((3,), 6)
    changed = torch.cat([inputs[:, :split], inputs_of(seed=1)[:, split:]], dim=1)
    before, after = backbone(inputs, lengths)[:, :split], backbone(changed, lengths)[:, :split]
    if task == "clm":
        assert torch.equal(before, after)
    else:
        assert ((before - after).abs().amax((0, 2)) > 1e-4).all()  # each earlier event saw it


@every_pair
def test_an_event_sees_every_earlier_one(architecture, task):
    backbone, inputs, lengths = backbone_of(architecture, task), inputs_of(1), torch.tensor([6])
    for position in range(5):
        changed = inputs.clone()
        changed[:, position] += 1 + inputs_of(1, seed=1)[:, position]
        last, other = backbone(inputs, lengths)[:, 5], backbone(changed, lengths)[:, 5]
        assert not torch.allclose(last, other)


@pytest.mark.parametrize(
    ("architecture", "task"), mark_slow(pair for pair in PAIRS if pair[0] != "avg")
)
def test_order_matters(architecture, task):
    backbone, inputs, lengths = backbone_of(architecture, task), inputs_of(), torch.full((3,), 6)
    swapped = inputs[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(backbone(inputs, lengths)[:, 5], backbone(swapped, lengths)[:, 5])


@every_pair
def test_a_session_is_encoded_alone_as_in_a_batch(architecture, task):
    backbone, inputs, lengths = (
        backbone_of(architecture, task),
        inputs_of(),
        torch.tensor([6, 4, 1]),
    )
    together = backbone(inputs, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = backbone(inputs[row : row + 1, :n], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :n], alone, rtol=1e-4, atol=1e-5)


@every_pair
def test_an_empty_row_is_finite_and_changes_no_other(architecture, task):
    backbone, inputs = backbone_of(architecture, task), inputs_of()
    hidden = backbone(inputs, torch.tensor([6, 4, 0]))
    assert hidden.isfinite().all()
    assert torch.equal(hidden[:2], backbone(inputs, torch.tensor([6, 4, 3]))[:2])


@every_pair
def test_exactly_what_the_output_does_not_depend_on_is_frozen(architecture, task):
    backbone, inputs, lengths = (
        backbone_of(architecture, task),
        inputs_of(),
        torch.tensor([6, 4, 1]),
    )
    with torch.no_grad():
        before = backbone(inputs, lengths)
        for name, parameter in backbone.named_parameters():
            old = parameter.clone()
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
            depends = not torch.equal(before, backbone(inputs, lengths))
            parameter.copy_(old)
            if not SHIFTS_ALL_SCORES.search(name):
                assert depends == parameter.requires_grad, name


@every_pair
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_every_step_reaches_all_parameters_that_are_not_frozen(architecture, task, precision):
    """Whatever this process's part of the batch: one event each, or empty rows alone."""
    if (architecture, precision) == ("lstm", torch.bfloat16) and not HAS_AVX512:
        pytest.skip("oneDNN has no bfloat16 LSTM for this CPU")
    backbone = built(architecture, task, dropout=0.0 if architecture in ("avg", "mamba") else 0.1)
    for width, lengths in [(1, [1, 1]), (3, [0, 0]), (6, [6, 2])]:
        inputs = inputs_of(2)[:, :width]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            hidden = backbone.train()(inputs, torch.tensor(lengths))
        assert hidden.dtype == torch.float32
        if architecture != "avg":
            hidden.square().sum().backward()
        for name, parameter in backbone.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
            assert parameter.grad is None or parameter.grad.isfinite().all(), name
        backbone.zero_grad(set_to_none=True)


def causal_unless_longformer(architecture, **changes):
    return built(architecture, "mlm" if architecture == "longformer" else "clm", **changes)


@pytest.mark.parametrize("architecture", mark_slow(name for name in LEARNING if name != "albert"))
def test_every_two_layers_add_the_same_weights(architecture):
    """Two, because Reformer alternates between two kinds."""
    backbones = (causal_unless_longformer(architecture, n_layer=n) for n in (1, 3, 5))
    one, three, five = (sum(map(torch.numel, each.parameters())) for each in backbones)
    assert five - three == three - one > 2 * 16**2


@pytest.mark.parametrize("architecture", mark_slow(name for name in LEARNING if name != "mamba"))
def test_dropout_in_training_only(architecture):
    backbone = causal_unless_longformer(architecture, dropout=0.5)
    inputs, lengths = inputs_of(2), torch.tensor([6, 6])
    assert not torch.equal(backbone.train()(inputs, lengths), backbone(inputs, lengths))
    assert torch.equal(backbone.eval()(inputs, lengths), backbone(inputs, lengths))


@pytest.mark.parametrize("architecture", mark_slow(LEARNING))
def test_without_dropout_training_and_evaluation_agree(architecture):
    backbone = causal_unless_longformer(architecture)
    inputs, lengths = inputs_of(2), torch.tensor([6, 3])
    trained, evaluated = backbone.train()(inputs, lengths), backbone.eval()(inputs, lengths)
    assert torch.allclose(trained[1, :3], evaluated[1, :3], atol=1e-6)


CURES = {
    "clm": "set task.name to mlm, or model.architecture to gpt2, xlnet",
    "mlm": "set task.name to clm or model.architecture to bert or xlnet",
}


@pytest.mark.parametrize(("architecture", "task", "reason"), REJECTED)
def test_an_architecture_with_the_wrong_attention_is_rejected(architecture, task, reason):
    with pytest.raises(ConfigError, match=f"{reason}; {CURES[task]}") as error:
        built(architecture, task)
    assert f"model.architecture: {architecture} " in str(error.value)


def test_attention_that_depends_on_the_batch_is_rejected():
    """Gemma's own field opens both sides only where a batch has no padding (transformers 5.23)."""
    with pytest.raises(ConfigError, match="depends on other sessions in the batch"):
        built("gemma", "mlm", config={"use_bidirectional_attention": True})


@pytest.mark.parametrize(
    ("architecture", "task"), mark_slow(pair for pair in PAIRS if pair[0] not in WITHOUT_WEIGHTS)
)
@torch.no_grad()
def test_attention_weights_of_each_layer(architecture, task):
    backbone, inputs, lengths = built(architecture, task, n_layer=2), inputs_of(), [6, 4, 1]
    before = backbone(inputs, torch.tensor(lengths))
    weights = backbone.attention_weights(inputs, torch.tensor(lengths))
    assert [layer.shape for layer in weights] == [(3, 2, 6, 6)] * 2
    for layer in weights:
        for row, n in enumerate(lengths):
            own = layer[row, :, :n]
            assert torch.allclose(own.sum(-1), torch.ones(()), atol=1e-5)
            assert (own[..., n:] == 0).all()
            assert (own.triu(1) == 0).all() == (task == "clm" or n == 1)
    assert torch.equal(before, backbone(inputs, torch.tensor(lengths)))  # implementation restored


@pytest.mark.parametrize("architecture", WITHOUT_WEIGHTS)
def test_attention_weights_are_rejected_where_there_are_none(architecture):
    task = "mlm" if architecture == "longformer" else "clm"
    with pytest.raises(ConfigError, match=rf"evaluation\.attention_of: {architecture}"):
        backbone_of(architecture, task).attention_weights(inputs_of(), torch.full((3,), 6))


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "gru"])
def test_only_xlnet_has_a_query_stream(architecture):
    config = model_config(architecture=architecture)
    with pytest.raises(ConfigError, match=r"quer.*set model\.architecture to xlnet|past only"):
        Backbone(config, "permutation", 6)


@torch.no_grad()
def test_a_query_sees_its_position_and_what_is_not_hidden_from_it():
    config, lengths = model_config(architecture="xlnet"), torch.tensor([6])
    backbone = Backbone(config, "permutation", 6).eval()
    is_hidden = torch.zeros(1, 6, 6).bool()
    is_hidden[:, :, [2, 4]] = True  # the two queries' own events are hidden from all

    def states(inputs):
        return backbone.query_stream(inputs, lengths, is_hidden, torch.tensor([[2, 4]]))

    inputs, changed = inputs_of(1), inputs_of(1)
    changed[:, [2, 4]] = inputs_of(1, seed=1)[:, [2, 4]]
    assert torch.equal(states(inputs), states(changed))
    assert not torch.allclose(states(inputs)[:, 0], states(inputs)[:, 1])
    changed[:, 3] += 1
    assert not torch.allclose(states(inputs), states(changed))
    assert backbone.network.transformer.mask_emb.requires_grad


@pytest.mark.parametrize("n_layer", [1, 2])
@torch.no_grad()
def test_a_query_knows_on_which_side_of_a_single_event_it_is(n_layer):
    config, lengths = model_config(architecture="xlnet", n_layer=n_layer), torch.tensor([2])
    backbone = Backbone(config, "permutation", 6).eval()
    event = inputs_of(1)[:, :1].expand(-1, 2, -1)

    def state(position):
        is_hidden = (torch.arange(2) == position).expand(1, 2, 2)
        return backbone.query_stream(event, lengths, is_hidden, torch.tensor([[position]]))

    assert not torch.allclose(state(0), state(1))


@torch.no_grad()
def test_rnn_and_gru_are_their_recurrences():
    for architecture in ("rnn", "gru", "gru4rec"):
        backbone = built(architecture, "clm")
        cell = backbone.network.cell
        inputs, state = inputs_of(2), torch.zeros(2, 16)
        hidden = backbone(inputs, torch.tensor([6, 6]))
        for step in range(6):
            from_input = inputs[:, step] @ cell.weight_ih_l0.T + cell.bias_ih_l0
            from_state = state @ cell.weight_hh_l0.T + cell.bias_hh_l0
            if architecture == "rnn":
                state = torch.tanh(from_input + from_state)
            else:
                pairs = list(zip(from_input.chunk(3, 1), from_state.chunk(3, 1), strict=True))
                reset, update = (torch.sigmoid(sum(pairs[k])) for k in (0, 1))
                new = torch.tanh(pairs[2][0] + reset * pairs[2][1])
                state = (1 - update) * new + update * state
            torch.testing.assert_close(hidden[:, step], state)


def test_gru4rec_starts_uniform_by_the_sizes_of_each_gate_without_biases():
    """Of sqrt(6 / (16 + 16)) each; the standard deviation of a uniform number is its end / 3^.5."""
    weights = dict(built("gru4rec", "clm", n_layer=2).network.cell.named_parameters())
    for name in ("weight_ih_l0", "weight_hh_l1"):
        for gate in weights[name].detach().chunk(3):
            assert gate.abs().max() <= (6 / 32) ** 0.5
            assert gate.std() == pytest.approx((6 / 32 / 3) ** 0.5, rel=0.15)
    assert not any(weights[name].any() for name in weights if "bias" in name)


@pytest.mark.parametrize(
    "changes",
    [
        {"features": ["category"]},
        {"item_embedding_dim": 8},
        {"feature_norm": True},
        {"activation": "tanh"},
        {"tie_weights": False},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_gru4rec_is_refused_with_more_than_one_table(changes):
    [name] = changes
    with pytest.raises(ConfigError, match=rf"found {name}: .*set model\.architecture to gru"):
        built("gru4rec", "clm", **changes)
    assert built("gru", "clm", **changes)
    assert built("gru4rec", "clm", item_embedding_dim=16)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_the_average_is_the_mean_of_each_prefix(n_rows, width, seed):
    events = torch.randn(n_rows, width, 3, generator=torch.Generator().manual_seed(seed))
    means = Average()(events, torch.ones(n_rows, width).bool())
    for n in range(1, width + 1):
        torch.testing.assert_close(means[:, n - 1], events[:, :n].mean(1))


class Network(nn.Module):
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


@pytest.mark.parametrize("max_length", [2, 3, 20, 100])
@pytest.mark.parametrize(
    ("expression", "causal", "error"),
    [
        (past, True, None),
        (both, False, None),
        (both, True, "it lets an event see a later one"),
        (one_step_ahead, True, "it lets an event see a later one"),
        (only_the_last_two_leak, True, "it lets an event see a later one"),
        (past, False, "it sees the past only"),
        (reading_padding, False, "it attends to padding"),
        (by_width, True, "its output for a session depends on other sessions in the batch"),
        (over_the_batch, True, "its output for a session depends on other sessions in the batch"),
    ],
)
@pytest.mark.parametrize("is_training", [True, False])
def test_the_causality_check_finds_each_violation(
    expression, causal, error, max_length, is_training
):
    network = Network(expression).train(is_training)
    found = receptive_field_error(network, 3, max_length, causal=causal)
    assert found is None if error is None else found.startswith(error)
    assert network.training == is_training


@pytest.mark.parametrize(
    "expression",
    [
        lambda inputs, is_event: inputs[..., :1],
        lambda inputs, is_event: inputs[:, -1],
        lambda inputs, is_event: inputs / 0,
    ],
)
def test_the_causality_check_finds_outputs_of_another_shape_or_not_finite(expression):
    error = receptive_field_error(Network(expression), 3, 7, causal=True)
    assert "finite [9, 7, 3] is expected" in error
