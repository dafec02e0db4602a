"""Embedding tables that grow by rows as the vocabulary does."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dayahead.columns import N_RESERVED, UNKNOWN
from dayahead.seeds import derived_seed


class GrowingTable(nn.Module):
    """Rows of a vocabulary by index, without the reserved ones.

    Padding and unknown values are looked up as zeros, unknown plus one learned vector. A row's
    initial value depends on (seed, name, row) alone, whenever the table grows to hold it.
    """

    def __init__(self, dim: int, std: float, seed: int) -> None:
        super().__init__()
        self.std = std
        self.seed = seed
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.unknown = nn.Parameter(torch.zeros(dim))

    @property
    def n_rows(self) -> int:
        """Values held, the reserved ones not counted."""
        return len(self.weight)

    def grow(self, n_rows: int) -> None:
        """Append the rows up to `n_rows`; a new Parameter takes the place of the old one."""
        old = self.weight
        if n_rows > len(old):
            new_rows = initial_rows(n_rows, old.shape[1], self.std, self.seed)[len(old) :]
            self.weight = nn.Parameter(torch.cat([old.detach(), new_rows.to(old.device)]))

    def holds(self, indices: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """Which vocabulary indices have a row here."""
        return (indices >= N_RESERVED) & (indices < N_RESERVED + self.n_rows)

    def forward(self, indices: Int[Tensor, "B L"]) -> Float[Tensor, "B L d"]:
        """Look up vocabulary indices; one beyond the table counts as unknown."""
        is_held = self.holds(indices)
        rows = (indices - N_RESERVED).where(is_held, 0)
        found = nn.functional.embedding(rows, self.weight)  # [B, L, d]
        is_unknown = (indices >= UNKNOWN) & ~is_held
        return found * is_held[..., None] + self.unknown * is_unknown[..., None]


def initial_rows(n_rows: int, dim: int, std: float, seed: int) -> Float[Tensor, "n d"]:
    """Draw normal rows; a longer draw begins with the shorter one (numpy's ziggurat does)."""
    draw = np.random.Generator(np.random.PCG64(derived_seed(seed, "rows")))
    return torch.from_numpy(draw.standard_normal((n_rows, dim), dtype=np.float32) * np.float32(std))
