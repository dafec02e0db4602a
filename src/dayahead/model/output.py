"""What hidden states are scored against."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.distributed.sharding import WHOLE, Shard


@dataclass(frozen=True)
class OutputLayer:
    """A row and a bias of every item held; a score is their product with a state, and sum.

    Items are numbered from 0. Where the rows are shared out, this process has those of its shard,
    and all processes call the methods in step.
    """

    table: Float[Tensor, "m d"]
    bias: Float[Tensor, " m"]
    n_items: int
    """On all processes together."""
    shard: Shard = WHOLE

    @classmethod
    def whole(cls, table: Float[Tensor, "n d"], bias: Float[Tensor, " n"]) -> "OutputLayer":
        """One whose rows all lie on this process."""
        return cls(table, bias, len(table))

    def at_temperature(self, temperature: float) -> "OutputLayer":
        """Biases as they are added to scores of states that are divided by the temperature."""
        return replace(self, bias=self.bias / temperature)

    def detached(self) -> "OutputLayer":
        """Without a way for gradients."""
        return replace(self, table=self.table.detach(), bias=self.bias.detach())

    def rows(self, items: Int[Tensor, " k"]) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
        """Rows and biases of some items, whoever holds them."""
        return self.shard.lookup(self.table, items), self.shard.lookup_scalars(self.bias, items)

    def part(self, items: Int[Tensor, " k"]) -> "OutputLayer":
        """Some items alone, in their order, wholly on this process."""
        return OutputLayer.whole(*self.rows(items))

    def own_part(self, items: Int[Tensor, " k"]) -> "OutputLayer":
        """Those of some items whose rows are held here, in their order."""
        _, own = self.shard.local_indices(items)
        return replace(self, table=self.table[own], bias=self.bias[own], n_items=len(items))

    def own_scores(self, states: Float[Tensor, "T d"]) -> Float[Tensor, "T m"]:
        """Scores of the items whose rows are held here."""
        return torch.addmm(self.bias, states, self.table.T)

    def scores_of(self, items: Int[Tensor, " T"], states: Float[Tensor, "T d"]) -> Tensor:
        """Score of one item for each state, float32 [T]."""
        rows, biases = self.rows(items)
        return (states * rows).sum(1).float() + biases

    def mean_scores(self, states: Float[Tensor, "T d"]) -> Float[Tensor, " T"]:
        """Mean over all items of the scores."""
        row, bias = (self.shard.mean(own, self.n_items) for own in (self.table, self.bias))
        return states @ row + bias
