"""How alike the items of a list are: by the values of an attribute, or by vectors."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float32, Int
from torch import Tensor
from torch.nn.functional import normalize

COMPONENTS = 2**22
"""Components of vectors that are read at once: 32 MiB."""


@dataclass(frozen=True)
class SameValue:
    """Two items are alike if their values are equal."""

    values: Int[Tensor, " I"]
    """By catalogue index, all different where there is none."""
    unit: ClassVar[int] = 1
    """The sum of two equal items."""

    def sums(self, items: Int[Tensor, "Q K"]) -> Int[Tensor, " K"]:
        """Return for each position the sum over its pairs with the items above it, int64."""
        values = self.values[items]  # [Q, K]
        return (values[:, :, None] == values[:, None, :]).tril(-1).sum((0, 2))


@dataclass(frozen=True)
class Cosine:
    """Two items are alike by the cosine of their vectors; 0 where one has none."""

    vectors: Float32[Tensor, "I D"]
    """By catalogue index, 0 where there is none."""
    unit: ClassVar[int] = 2**32
    """Of each list and position the sum is rounded to 2^-32, below 1.2e-10 of a cosine."""

    def sums(self, items: Int[Tensor, "Q K"]) -> Int[Tensor, " K"]:
        """Return for each position the sum over its pairs with the items above it, int64."""
        total = torch.zeros(items.shape[1], dtype=torch.int64, device=items.device)
        n_rows = max(1, COMPONENTS // (items.shape[1] * self.vectors.shape[1]))
        for some in torch.split(items, n_rows):
            above = torch.zeros((), dtype=torch.float64, device=items.device)
            for position, column in enumerate(some.T):
                of_unit_length = normalize(self.vectors[column].double())  # [Q, D]
                # With those above, one by one, it has the cosines of their sum.
                cosines = (of_unit_length * above).sum(1)
                total[position] += (cosines * self.unit).round().long().sum()
                above = above + of_unit_length
        return total


Likeness = SameValue | Cosine
"""Sums over lists of how alike two items are, as integers: exact in any order."""
