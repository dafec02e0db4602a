"""`ligr`: a causal transformer with gated sublayers, the network of RecTools' eSASRec."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from dayahead.config.model import ModelConfig

Vectors = Float[Tensor, "B L D"]
WIDTH = 4
"""Width of the feed-forward layers, in widths of the model."""


class LiGR(nn.Module):
    """Layers x + sigmoid(G x) * sublayer(norm(x)) of Borisyuk et al. 2025 over learned positions.

    The sublayers are causal attention and a feed-forward network with SwiGLU (Shazeer 2020).
    Padding comes after the events, so that no event attends to it.

    Raises:
        ValueError: the width is no multiple of the heads.
    """

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        if config.d_model % config.n_head:
            raise ValueError("model.d_model must be a multiple of model.n_head")
        self.positions = nn.Embedding(max_length, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(LiGRLayer(config) for _ in range(config.n_layer))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.init_std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, inputs: Vectors, is_event: Bool[Tensor, "B L"]) -> Vectors:
        """State after each event."""
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        hidden: Tensor = self.dropout(inputs + self.positions(steps))
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class LiGRLayer(nn.Module):
    """Attention and feed-forward network, each behind a gate that reads the layer's input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, inner = config.d_model, WIDTH * config.d_model
        self.n_head = config.n_head
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.inner = nn.Linear(width, 2 * inner, bias=False)
        self.outer = nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, inputs: Vectors) -> Vectors:
        """Apply both sublayers."""
        for norm, gate, sublayer in zip(
            self.norms, self.gates, (self._attend, self._feed_forward), strict=True
        ):
            inputs = inputs + gate(inputs).sigmoid() * self.dropout(sublayer(norm(inputs)))
        return inputs

    def _attend(self, inputs: Vectors) -> Vectors:
        heads = self.queries_keys_values(inputs).chunk(3, dim=-1)
        # [B, L, D] -> [B, H, L, D / H]
        query, key, value = (
            each.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for each in heads
        )
        rate = self.dropout.p if self.training else 0.0
        found = scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        attended: Tensor = self.attended(found.transpose(1, 2).flatten(2))
        return attended

    def _feed_forward(self, inputs: Vectors) -> Vectors:
        gate, value = self.inner(inputs).chunk(2, dim=-1)
        outer: Tensor = self.outer(self.dropout(silu(gate) * value))
        return outer
