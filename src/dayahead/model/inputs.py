"""What the body reads of an event: the item's vector, and with it the side features'."""

import math
from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.config.params import ModelConfig
from dayahead.core.columns import IS_PAST, ITEM_ID
from dayahead.core.seeds import derived_seed
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.numbers import number_vector
from dayahead.model.projection import projection

FEATURE = "feature_"
"""Before a feature's name: no module may be called `type` or `items`, a feature may."""


class EventInputs(nn.Module):
    """Columns of a window file [B, L] into vectors [B, L, D] (Moreira et al. 2021, section 3.3).

    Args:
        config: sizes, initial values, and how vectors are merged.
        categoricals: side feature to the number of values its embedding's size is made for.
        numbers: window-file columns that hold numbers, and the kinds of their features.
        seed: root of every initial value of the tables.
        shard: which rows of the item table this process holds.
    """

    def __init__(
        self,
        config: ModelConfig,
        categoricals: Mapping[str, int],
        numbers: Mapping[str, str],
        seed: int,
        shard: Shard = WHOLE,
    ) -> None:
        super().__init__()
        self.kinds = numbers
        self.is_elementwise = config.merge == "elementwise"
        dims = vector_dims(config, categoricals, numbers)
        self.items = self._table(config, ITEM_ID, dims[ITEM_ID], seed, shard)
        self.categoricals = nn.ModuleDict(
            {FEATURE + name: self._table(config, name, dims[name], seed) for name in categoricals}
        )
        self.numbers = nn.ModuleDict(
            {FEATURE + name: number_vector(config, dims[name]) for name in numbers}
        )
        self.norms = nn.ModuleDict()
        if config.feature_norm:
            # The norm of a single number is a constant: it would erase what it is told.
            normed = {FEATURE + name: nn.LayerNorm(dim) for name, dim in dims.items() if dim > 1}
            self.norms.update(normed)
        width = dims[ITEM_ID] if self.is_elementwise else sum(dims.values())
        self.dropout = nn.Dropout(config.input_dropout)
        self.project = projection(width, config.d_model, config.activation)
        self.past = nn.Parameter(torch.zeros(config.d_model))
        self.past.requires_grad_(config.past_length > 0)

    @property
    def tables(self) -> dict[str, GrowingEmbedding]:
        """Tables by column of the window files, the item's first."""
        tables = cast("dict[str, GrowingEmbedding]", dict(self.categoricals))
        return {ITEM_ID: self.items} | {k.removeprefix(FEATURE): t for k, t in tables.items()}

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Hold the first `sizes[column]` values of each vocabulary."""
        for name, table in self.tables.items():
            table.grow(sizes[name])

    def forward(
        self, columns: Mapping[str, Int[Tensor, "B L"]], items: Float[Tensor, "B L d"]
    ) -> Float[Tensor, "B L D"]:
        """Embed every event; an index that is not held is read as unknown.

        Events of the user's past (where IS_PAST is there and 1) have one learned vector added, by
        which the body tells them from the session.

        Args:
            columns: of the window file.
            items: what `self.items` has for them. Each look-up in a table takes a gradient as large
                as the table, so that of the items is shared between the parts of a batch.
        """
        others = {name: each for name, each in self.tables.items() if name != ITEM_ID}
        vectors = {ITEM_ID: items} | {name: each(columns[name]) for name, each in others.items()}
        # The age of an item not held is not known either, though a window file may tell it.
        is_held = self.items.holds(columns[ITEM_ID])
        for name, kind in self.kinds.items():
            values = columns[name] * is_held if kind == "item_age" else columns[name]
            vectors[name] = self.numbers[FEATURE + name](values[..., None])
        merged: Tensor = self.project(self.dropout(self._merged(vectors)))
        if IS_PAST in columns:
            merged = merged + self.past * columns[IS_PAST][..., None]
        return merged

    def _merged(self, vectors: dict[str, Tensor]) -> Float[Tensor, "B L W"]:
        """Side by side, or item * (1 + the sum of the others)."""
        for name, vector in vectors.items():
            if FEATURE + name in self.norms:
                vectors[name] = self.norms[FEATURE + name](vector)
        item, *others = vectors.values()
        if self.is_elementwise:
            merged: Tensor = item * (1 + sum(others))
            return merged
        return torch.cat([item, *others], dim=-1)

    @staticmethod
    def _table(
        config: ModelConfig, name: str, dim: int, seed: int, shard: Shard = WHOLE
    ) -> GrowingEmbedding:
        is_item = name == ITEM_ID
        std = config.item_init_std if is_item else config.feature_init_std
        is_frozen = is_item and config.freeze_items
        own_seed = derived_seed(seed, "table", name)
        return GrowingEmbedding(dim, std, own_seed, is_frozen=is_frozen, shard=shard)


def vector_dims(
    config: ModelConfig, categoricals: Mapping[str, int], numbers: Mapping[str, str]
) -> dict[str, int]:
    """Size of each column's vector, the item's first; 1 is a bare number.

    Element by element every one has the item's size, a number's too, so that none is left out.
    """
    if config.merge == "elementwise":
        return dict.fromkeys([ITEM_ID, *categoricals, *numbers], config.item_dim)
    by_size = {
        name: embedding_dim(size, config.embedding_multiplier)
        for name, size in categoricals.items()
    }
    return {ITEM_ID: config.item_dim} | by_size | dict.fromkeys(numbers, max(config.number_dim, 1))


def embedding_dim(n_values: int, multiplier: float) -> int:
    """Size of a side feature's embedding: the fourth root of its values times the multiplier."""
    return math.ceil(multiplier * math.sqrt(math.sqrt(max(1, n_values))))
