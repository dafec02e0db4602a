"""LiGR against torch's own attention."""

import pytest
import torch
from torch import nn

from dayahead.model.ligr import LiGR
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
