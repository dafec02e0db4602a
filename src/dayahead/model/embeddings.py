"""Embedding tables that grow by rows as the vocabulary does."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dayahead.core.columns import N_RESERVED, UNKNOWN
from dayahead.core.seeds import derived_seed
from dayahead.distributed.sharding import WHOLE, Shard

DRAWN_AT_ONCE = 2**16
"""Rows; a table may be larger than the memory of one process."""


@dataclass(frozen=True)
class PretrainedRows:
    """Initial values that some rows of a table have instead of random ones."""

    rows: Int[Tensor, " k"]
    """Counted from 0, the reserved indices left out; also such as a table does not hold yet."""
    vectors: Float[Tensor, "k d"]


class GrowingEmbedding(nn.Module):
    """Rows of a vocabulary by index, without the reserved ones.

    Padding and unknown values are looked up as zeros, unknown plus one learned vector. A row's
    initial value is given, or depends on (seed, name, row) alone, whenever the table grows to hold
    it.

    Args:
        dim: size of a row.
        std: of the normal distribution that rows are drawn from.
        seed: of the draw.
        is_frozen: rows keep their initial values; the vector of what is unknown learns.
        shard: which of the rows this process holds.
    """

    def __init__(
        self,
        dim: int,
        std: float,
        seed: int,
        *,
        is_frozen: bool = False,
        shard: Shard = WHOLE,
    ) -> None:
        super().__init__()
        self.std = std
        self.seed = seed
        self.shard = shard
        self.n_rows = 0
        """Values held by all processes, the reserved ones not counted."""
        self.given: PretrainedRows | None = None
        self.weight = nn.Parameter(torch.empty(0, dim), requires_grad=not is_frozen)
        self.unknown = nn.Parameter(torch.zeros(dim))

    def grow(self, n_rows: int) -> None:
        """Append the rows up to `n_rows`; a new Parameter takes the place of the old one."""
        old = self.weight
        if n_rows > self.n_rows:
            new_rows = self._initial_rows(self.n_rows, n_rows)
            rows = torch.cat([old.detach(), new_rows.to(old.device)])
            self.weight = nn.Parameter(rows, requires_grad=old.requires_grad)
            self.n_rows = n_rows

    def holds(self, indices: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """Which vocabulary indices have a row here."""
        return (indices >= N_RESERVED) & (indices < N_RESERVED + self.n_rows)

    def forward(self, indices: Int[Tensor, "B L"]) -> Float[Tensor, "B L d"]:
        """Look up vocabulary indices; one beyond the table counts as unknown."""
        is_held = self.holds(indices)
        rows = (indices - N_RESERVED).where(is_held, 0)
        found = self.shard.lookup(self.weight, rows)  # [B, L, d]
        is_unknown = (indices >= UNKNOWN) & ~is_held
        return found * is_held[..., None] + self.unknown * is_unknown[..., None]

    def _initial_rows(self, begin: int, end: int) -> Float[Tensor, "n d"]:
        """Those from `begin` to `end` that this process holds."""
        initial = initial_rows(begin, end, self.weight.shape[1], self.std, self.seed, self.shard)
        if self.given:
            rows, first = self.given.rows, self.shard.n_local(begin)
            is_here = (
                (rows >= begin) & (rows < end) & (rows % self.shard.world_size == self.shard.rank)
            )
            initial[rows[is_here] // self.shard.world_size - first] = self.given.vectors[is_here]
        return initial


def initial_rows(
    begin: int, end: int, dim: int, std: float, seed: int, shard: Shard
) -> Float[Tensor, "n d"]:
    """Draw a shard's normal rows; a longer draw begins with the shorter one (numpy's ziggurat)."""
    draw = np.random.Generator(np.random.PCG64(derived_seed(seed, "rows")))
    pieces = [torch.empty(0, dim)]
    for first in range(0, end, DRAWN_AT_ONCE):
        last = min(first + DRAWN_AT_ONCE, end)
        rows = torch.from_numpy(draw.standard_normal((last - first, dim), dtype=np.float32))
        own = shard.local_slice(max(begin - first, 0) + first, last)
        pieces.append(rows[own.start - first :: shard.world_size] * std)
    return torch.cat(pieces)
