"""Vectors of numbers: the number itself, a linear map of it, a soft choice among learned vectors.

Linear maps begin as torch's do, evenly within 1 / sqrt(inputs), so that a number is not lost beside
other features; the vectors chosen from begin as the tables of side features do.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dayahead.config.params import ModelConfig


class SoftOneHot(nn.Module):
    """softmax(w x + b) over n learned vectors (Moreira et al. 2021, section 3.3).

    The choice follows the number without a cut, so near numbers have near vectors.
    """

    def __init__(self, n_vectors: int, dim: int, std: float) -> None:
        super().__init__()
        self.choose = nn.Linear(1, n_vectors)
        self.vectors = nn.Parameter(torch.randn(n_vectors, dim) * std)

    def forward(self, values: Float[Tensor, "B L 1"]) -> Float[Tensor, "B L d"]:
        """Mix the vectors."""
        shares = self.choose(values).softmax(-1)  # [B, L, n]
        mixed: Tensor = shares @ self.vectors
        return mixed


def number_vector(config: ModelConfig, dim: int) -> nn.Module:
    """Make what turns numbers [B, L, 1] into vectors [B, L, dim], as the settings wish."""
    if config.soft_one_hot:
        return SoftOneHot(config.soft_one_hot, dim, config.feature_init_std)
    is_bare = config.merge == "concat" and config.number_dim == 0
    return nn.Identity() if is_bare else nn.Linear(1, dim)
