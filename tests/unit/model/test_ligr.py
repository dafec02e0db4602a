"""LiGR against torch's own attention, its gates, and what it refuses."""

import pytest
import torch
from torch import nn

from dayahead.core.errors import ConfigError
from dayahead.model.backbones import Backbone
from dayahead.model.ligr import LiGR, LiGRLayer
from support.tiny_settings import model_config


def network(seed=0, **changes):
    """Return a network in evaluation mode; init_std is large, so that no term is negligible."""
    torch.manual_seed(seed)
    config = model_config(architecture="ligr", init_std=0.4, **changes)
    return LiGR(config, max_length=6).eval(), config


def by_torch(layer, inputs, n_head):
    """The layer's formula, with torch's attention over the same weights."""
    attention = nn.MultiheadAttention(inputs.shape[-1], n_head, batch_first=True).eval()
    with torch.no_grad():
        attention.in_proj_weight.copy_(layer.queries_keys_values.weight)
        attention.in_proj_bias.copy_(layer.queries_keys_values.bias)
        attention.out_proj.load_state_dict(layer.attended.state_dict())
    length = inputs.shape[1]
    normed = layer.norms[0](inputs)
    is_later = torch.ones(length, length).triu(1).bool()
    attended, _ = attention(normed, normed, normed, attn_mask=is_later)
    hidden = inputs + torch.sigmoid(layer.gates[0](inputs)) * attended
    gate, value = (layer.norms[1](hidden) @ layer.inner.weight.T).chunk(2, dim=-1)
    fed = (gate * torch.sigmoid(gate) * value) @ layer.outer.weight.T
    return hidden + torch.sigmoid(layer.gates[1](hidden)) * fed


@pytest.mark.parametrize("n_head", [1, 2, 4])
def test_a_layer_is_its_formula(n_head):
    net, _ = network(n_head=n_head)
    inputs = torch.randn(3, 6, 16)
    for layer in net.layers:
        torch.testing.assert_close(layer(inputs), by_torch(layer, inputs, n_head))


def test_a_closed_gate_passes_the_input_on():
    net, _ = network()
    layer = net.layers[0]
    assert isinstance(layer, LiGRLayer)
    for gate in layer.gates:
        nn.init.zeros_(gate.weight)
        nn.init.constant_(gate.bias, -100)
    inputs = torch.randn(2, 6, 16)
    torch.testing.assert_close(layer(inputs), inputs)


def test_the_same_item_has_another_state_at_another_position():
    net, _ = network(n_layer=1)
    inputs = torch.ones(1, 6, 16)
    states = net(inputs, torch.ones(1, 6, dtype=torch.bool))[0]
    assert (states[0] - states[1:]).abs().amax(1).min() > 1e-3


def test_dropout_changes_training_alone():
    net, _ = network(dropout=0.5)
    inputs, is_event = torch.randn(2, 6, 16), torch.ones(2, 6, dtype=torch.bool)
    assert torch.equal(net(inputs, is_event), net(inputs, is_event))
    net.train()
    assert not torch.equal(net(inputs, is_event), net(inputs, is_event))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 18, "n_head": 4}, "d_model must be a multiple of model.n_head"),
        ({"config": {"n_inner": 3}}, "ligr has no further fields"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Backbone(model_config(architecture="ligr", **changes), "causal", 6)
