"""What the body reads of an event: the item's embedding, beside it the side features'."""

import math
from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.columns import ITEM_ID
from dayahead.config.params import ModelConfig
from dayahead.model.tables import GrowingTable
from dayahead.seeds import derived_seed

FEATURE = "feature_"
"""Before a feature's name: no module may be called `type` or `items`, a feature may."""


class EventInputs(nn.Module):
    """Columns of a window file [B, L] into vectors [B, L, D].

    Args:
        config: sizes and initial values.
        categoricals: side feature to the number of values its embedding's size is made for.
        numbers: window-file columns that hold numbers, and the kinds of their features.
        seed: root of every initial value of the tables.
    """

    def __init__(
        self,
        config: ModelConfig,
        categoricals: Mapping[str, int],
        numbers: Mapping[str, str],
        seed: int,
    ) -> None:
        super().__init__()
        self.numbers = numbers
        item_dim = config.item_embedding_dim or config.d_model
        dims = {name: embedding_dim(size) for name, size in categoricals.items()}
        self.items = self._table(config, ITEM_ID, item_dim, seed)
        self.categoricals = nn.ModuleDict(
            {FEATURE + name: self._table(config, name, dim, seed) for name, dim in dims.items()}
        )
        width = item_dim + sum(dims.values()) + len(numbers)
        self.project = (
            nn.Identity() if width == config.d_model else nn.Linear(width, config.d_model)
        )
        self.dropout = nn.Dropout(config.input_dropout)

    @property
    def tables(self) -> dict[str, GrowingTable]:
        """Tables by column of the window files, the item's first."""
        tables = cast("dict[str, GrowingTable]", dict(self.categoricals))
        return {ITEM_ID: self.items} | {k.removeprefix(FEATURE): t for k, t in tables.items()}

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Hold the first `sizes[column]` values of each vocabulary."""
        for name, table in self.tables.items():
            table.grow(sizes[name])

    def forward(self, columns: Mapping[str, Int[Tensor, "B L"]]) -> Float[Tensor, "B L D"]:
        """Embed every event; an index that is not held is read as unknown."""
        parts = [table(columns[name]) for name, table in self.tables.items()]
        # The age of an item not held is not known either, though a window file may tell it.
        is_held = self.items.holds(columns[ITEM_ID])
        for name, kind in self.numbers.items():
            values = columns[name] * is_held if kind == "item_age" else columns[name]
            parts.append(values[..., None])
        merged: Tensor = self.project(torch.cat(parts, dim=-1))
        return merged

    @staticmethod
    def _table(config: ModelConfig, name: str, dim: int, seed: int) -> GrowingTable:
        return GrowingTable(dim, config.item_init_std, derived_seed(seed, "table", name))


def embedding_dim(n_values: int) -> int:
    """Size of a side feature's embedding: twice the fourth root of its values, as in the paper."""
    return math.ceil(2 * math.sqrt(math.sqrt(max(1, n_values))))
