"""Random numbers of one training step, the same however many processes share it."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.core.seeds import derived_seed


@dataclass(frozen=True)
class StepRandom:
    """Drawn for the whole global batch from (seed, purpose), then cut to rows of it."""

    seed: int
    items: Int[Tensor, "G L"]
    """Catalogue indices of the whole global batch, zeros behind each session; on every process."""
    past: Int[Tensor, " G"]
    """How many of a row's events are its user's past, before the session; these are only read."""
    rows: Int[Tensor, " B"]
    """Rows of the global batch at hand, on the CPU."""
    width: int
    """Positions at hand, from the first on."""

    @property
    def device(self) -> torch.device:
        """Where the numbers are wanted."""
        return self.items.device

    @property
    def n_past(self) -> Int[Tensor, " B"]:
        """Past events of the rows at hand."""
        return self.past[self.rows.to(self.device)]

    def uniform(self, purpose: str) -> Float[Tensor, "B W"]:
        """A number in [0, 1) for every position at hand."""
        drawn = torch.rand(self.items.shape, generator=self.generator(purpose))
        return drawn[self.rows, : self.width].to(self.device)

    def generator(self, purpose: str) -> torch.Generator:
        """A stream that all processes share, for what belongs to the batch and not to a row."""
        return torch.Generator().manual_seed(derived_seed(self.seed, purpose))

    def part(self, rows: Int[Tensor, " b"], width: int) -> "StepRandom":
        """Those of some of these rows."""
        return replace(self, rows=self.rows[rows.cpu()], width=width)

    def whole(self) -> "StepRandom":
        """Those of the whole global batch, whatever is at hand."""
        n_rows, width = self.items.shape
        return replace(self, rows=torch.arange(n_rows), width=width)
