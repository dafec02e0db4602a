"""Embedding tables that grow by rows as the vocabulary does."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dayahead.columns import N_RESERVED, UNKNOWN
from dayahead.seeds import derived_seed


@dataclass(frozen=True)
class GivenRows:
    """Initial values that some rows of a table have instead of random ones."""

    rows: Int[Tensor, " k"]
    """Counted from 0, the reserved indices left out; also such as a table does not hold yet."""
    vectors: Float[Tensor, "k d"]


class GrowingTable(nn.Module):
    """Rows of a vocabulary by index, without the reserved ones.

    Padding and unknown values are looked up as zeros, unknown plus one learned vector. A row's
    initial value is given, or depends on (seed, name, row) alone, whenever the table grows to hold
    it.

    Args:
        dim: size of a row.
        std: of the normal distribution that rows are drawn from.
        seed: of the draw.
        is_frozen: rows keep their initial values; the vector of what is unknown learns.
    """

    def __init__(self, dim: int, std: float, seed: int, *, is_frozen: bool = False) -> None:
        super().__init__()
        self.std = std
        self.seed = seed
        self.given: GivenRows | None = None
        self.weight = nn.Parameter(torch.empty(0, dim), requires_grad=not is_frozen)
        self.unknown = nn.Parameter(torch.zeros(dim))

    @property
    def n_rows(self) -> int:
        """Values held, the reserved ones not counted."""
        return len(self.weight)

    def grow(self, n_rows: int) -> None:
        """Append the rows up to `n_rows`; a new Parameter takes the place of the old one."""
        old = self.weight
        if n_rows > len(old):
            new_rows = self._initial_rows(n_rows)[len(old) :]
            rows = torch.cat([old.detach(), new_rows.to(old.device)])
            self.weight = nn.Parameter(rows, requires_grad=old.requires_grad)

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

    def _initial_rows(self, n_rows: int) -> Float[Tensor, "n d"]:
        initial = initial_rows(n_rows, self.weight.shape[1], self.std, self.seed)
        if self.given:
            is_held = self.given.rows < n_rows
            initial[self.given.rows[is_held]] = self.given.vectors[is_held]
        return initial


def initial_rows(n_rows: int, dim: int, std: float, seed: int) -> Float[Tensor, "n d"]:
    """Draw normal rows; a longer draw begins with the shorter one (numpy's ziggurat does)."""
    draw = np.random.Generator(np.random.PCG64(derived_seed(seed, "rows")))
    return torch.from_numpy(draw.standard_normal((n_rows, dim), dtype=np.float32) * np.float32(std))
