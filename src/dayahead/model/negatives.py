"""Items that a target is compared with, and how often a draw brings each."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.config.params import LossConfig
from dayahead.core.columns import N_RESERVED
from dayahead.model.rng import StepRandom

WEIGHT_UNIT = 2**16
"""Weights are whole numbers: their sums are exact, so every process draws the same items."""


@dataclass(frozen=True)
class Negatives:
    """What all targets of a step are compared with; an item may stand here several times."""

    items: Int[Tensor, " K"]
    """Rows of the item table."""
    log_expected: Float[Tensor, " K"]
    """Logarithm of how often the item is expected among the K."""

    def __len__(self) -> int:
        """Return K."""
        return len(self.items)


class NegativeSampler(nn.Module):
    """Draws negatives by popularity, and counts what the model was fitted on to know it.

    An item's weight is (1 + its events in the batches so far) to the power of
    `popularity_exponent`, so one never seen can be drawn too (word2vec's unigram distribution,
    Mikolov et al. 2013, smoothed). Draws are with replacement. The other negatives are the global
    batch's targets (Hidasi et al. 2016), taken as drawn by popularity itself.
    """

    counts: Tensor

    def __init__(self, config: LossConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))

    def grow(self, n_items: int) -> None:
        """Hold the first `n_items` of the catalogue."""
        self.counts = nn.functional.pad(self.counts, (0, max(0, n_items - len(self.counts))))

    def count(self, draws: StepRandom) -> None:
        """Take in the events of a global batch's sessions, but not their users' past."""
        steps = torch.arange(draws.items.shape[1], device=draws.device)
        is_own = (draws.items >= N_RESERVED) & (steps >= draws.past[:, None])  # [G, L]
        rows = draws.items[is_own] - N_RESERVED
        self.counts.scatter_add_(0, rows, torch.ones_like(rows))

    def forward(self, batch_targets: Int[Tensor, " M"], draws: StepRandom) -> Negatives:
        """Draw for one step.

        Args:
            batch_targets: rows of the global batch's targets, those of all processes; empty where
                they are to be no negatives.
            draws: of the step; all processes draw the same.
        """
        exact = (1 + self.counts).double() ** self.config.popularity_exponent
        weights = (exact * WEIGHT_UNIT).long()  # [n]
        ends = weights.cumsum(0)
        total = int(ends[-1])
        generator = draws.generator("negatives")
        places = torch.randint(total, (self.config.negatives,), generator=generator)
        drawn = torch.searchsorted(ends, places.to(ends.device), right=True)
        items = torch.cat([drawn, batch_targets])
        n_others = max(len(batch_targets) - 1, 0)  # a target is no negative of itself
        popularity = (1 + self.counts[items]) / (len(self.counts) + self.counts.sum())
        expected = self.config.negatives * weights[items] / total + n_others * popularity
        return Negatives(items, expected.log().float())
