"""Backbone inputs: the item's vector merged with those of its side features."""

import math
from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dayahead.config.model import ModelConfig
from dayahead.core.columns import IS_PAST, ITEM_ID, N_RESERVED, PADDING, UNKNOWN
from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.rng import StepRandom, derived_seed
from dayahead.windows.metadata import Statistics

FEATURE = "feature_"
"""Prefix of a feature's module: `type` and `items` are feature names but no module names."""
ACTIVATIONS = {"none": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


def vocabulary_columns(config: ModelConfig, statistics: Statistics) -> tuple[str, ...]:
    """Columns for whose vocabularies the model has embeddings, the item id first."""
    return (ITEM_ID, *(n for n in config.features if statistics.features[n].kind == "categorical"))


def check_inputs(config: ModelConfig, *, has_numbers: bool) -> None:
    """Raise ConfigError where settings of the inputs contradict each other, or have no effect."""
    is_elementwise = config.merge == "elementwise"
    if is_elementwise and not config.features:
        raise ConfigError(
            "params.yaml: model.merge: elementwise merges side features, and model.features names "
            "none; name some, or set model.merge to concat"
        )
    if (config.number_dim or config.soft_one_hot) and not has_numbers:
        raise ConfigError(
            f"params.yaml: model.number_dim ({config.number_dim}) and model.soft_one_hot "
            f"({config.soft_one_hot}) encode numeric features, and model.features names none; name "
            f"one, or set both to 0"
        )
    if is_elementwise and config.number_dim not in (0, config.item_dim):
        raise ConfigError(
            f"params.yaml: model.number_dim: {config.number_dim}, but with merge: elementwise each "
            f"vector has the item's size, {config.item_dim}; set model.number_dim to 0"
        )
    if config.soft_one_hot and not is_elementwise and config.number_dim == 0:
        raise ConfigError(
            f"params.yaml: model.soft_one_hot: {config.soft_one_hot} vectors of size "
            f"model.number_dim: 0; set model.number_dim above 0, or model.soft_one_hot to 0"
        )


def without_later(
    columns: Mapping[str, Tensor], known: Mapping[str, int], *, keeps_own_items: bool
) -> dict[str, Tensor]:
    """Read values beyond the first `known[column]` of each vocabulary as unknown.

    `keeps_own_items` leaves the items of the session itself, which may be recommended.
    """
    hidden = dict(columns)
    for name, n in known.items():
        is_later = columns[name] >= N_RESERVED + n
        if name == ITEM_ID and keeps_own_items:
            if IS_PAST not in columns:
                continue
            is_later &= columns[IS_PAST] == 1
        hidden[name] = columns[name].masked_fill(is_later, UNKNOWN)
    return hidden


class EventInputs(nn.Module):
    """Window-file columns [B, L] to vectors [B, L, D] (Moreira et al. 2021, section 3.3).

    Arguments are NextItemModel's.
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
        self.items = GrowingEmbedding(
            dims[ITEM_ID],
            config.item_init_std,
            derived_seed(seed, "table", ITEM_ID),
            is_frozen=config.freeze_items,
            shard=shard,
        )
        self.categoricals = nn.ModuleDict()
        for name in categoricals:
            own_seed = derived_seed(seed, "table", name)
            table = GrowingEmbedding(dims[name], config.feature_init_std, own_seed)
            self.categoricals[FEATURE + name] = table
        self.numbers = nn.ModuleDict(
            {FEATURE + name: number_encoder(config, dims[name]) for name in numbers}
        )
        # The layer norm of a single number is constant and would erase it.
        normed = {n: dim for n, dim in dims.items() if dim > 1} if config.feature_norm else {}
        self.norms = nn.ModuleDict({FEATURE + n: nn.LayerNorm(dim) for n, dim in normed.items()})
        width = dims[ITEM_ID] if self.is_elementwise else sum(dims.values())
        self.dropout = nn.Dropout(config.input_dropout)
        self.project = projection(width, config.d_model, config.activation)
        self.past = nn.Parameter(torch.zeros(config.d_model))
        # DDP waits for the gradient of every parameter that requires one.
        self.past.requires_grad_(config.past_length > 0)

    @property
    def tables(self) -> dict[str, GrowingEmbedding]:
        """Embedding tables by window-file column, the item's first."""
        tables = cast("dict[str, GrowingEmbedding]", dict(self.categoricals))
        return {ITEM_ID: self.items} | {k.removeprefix(FEATURE): t for k, t in tables.items()}

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Grow each table to the first `sizes[column]` values of its vocabulary."""
        for name, table in self.tables.items():
            table.grow(sizes[name])

    def forward(
        self, columns: Mapping[str, Int[Tensor, "B L"]], items: Float[Tensor, "B L d"]
    ) -> Float[Tensor, "B L D"]:
        """Encode every event.

        Events of the user's past (where the column IS_PAST is 1) have one learned vector added,
        which distinguishes them from the session's. `items` is `self.items` of the item column:
        each lookup in a table may allocate a gradient as large as the table, so the parts of a
        batch share one.
        """
        others = list(self.tables.items())[1:]
        vectors = {ITEM_ID: items} | {name: table(columns[name]) for name, table in others}
        # An unknown item's age counts as unknown too, though a window file may contain it.
        is_held = self.items.holds(columns[ITEM_ID])
        for name, kind in self.kinds.items():
            values = columns[name] * is_held if kind == "item_age" else columns[name]
            vectors[name] = self.numbers[FEATURE + name](values[..., None])
        merged: Tensor = self.project(self.dropout(self._merged(vectors)))
        if IS_PAST in columns:
            merged = merged + self.past * columns[IS_PAST][..., None]
        return merged

    def _merged(self, vectors: dict[str, Tensor]) -> Float[Tensor, "B L W"]:
        """Concatenated, or item * (1 + the sum of the others)."""
        for name, vector in vectors.items():
            if FEATURE + name in self.norms:
                vectors[name] = self.norms[FEATURE + name](vector)
        item, *others = vectors.values()
        if self.is_elementwise:
            merged: Tensor = item * (1 + sum(others))
            return merged
        return torch.cat([item, *others], dim=-1)


def vector_dims(
    config: ModelConfig, categoricals: Mapping[str, int], numbers: Mapping[str, str]
) -> dict[str, int]:
    """Size of each column's vector, the item's first; 1 is a bare number.

    A categorical's is the fourth root of its number of values times the multiplier. Elementwise
    merging gives every column, numeric ones too, the item's size.
    """
    if config.merge == "elementwise":
        return dict.fromkeys([ITEM_ID, *categoricals, *numbers], config.item_dim)
    by_size = {
        name: math.ceil(config.embedding_multiplier * math.sqrt(math.sqrt(max(1, n_values))))
        for name, n_values in categoricals.items()
    }
    return {ITEM_ID: config.item_dim} | by_size | dict.fromkeys(numbers, max(config.number_dim, 1))


def number_encoder(config: ModelConfig, dim: int) -> nn.Module:
    """Encode numbers [B, L, 1] as vectors [B, L, dim]: bare, by a linear map or soft one-hot.

    Linear maps keep torch's initialisation, so that a number is not lost next to other features.
    """
    if config.soft_one_hot:
        return SoftOneHot(config.soft_one_hot, dim, config.feature_init_std)
    is_bare = config.merge == "concat" and config.number_dim == 0
    return nn.Identity() if is_bare else nn.Linear(1, dim)


class SoftOneHot(nn.Module):
    """Weights softmax(w x + b) over n learned vectors (Moreira et al. 2021, section 3.3).

    The weights are continuous in the number, so near numbers have near vectors.
    """

    def __init__(self, n_vectors: int, dim: int, std: float) -> None:
        super().__init__()
        self.choose = nn.Linear(1, n_vectors)
        self.vectors = nn.Parameter(torch.randn(n_vectors, dim) * std)

    def forward(self, values: Float[Tensor, "B L 1"]) -> Float[Tensor, "B L d"]:
        """Weighted sum of the vectors."""
        vectors: Tensor = self.choose(values).softmax(-1) @ self.vectors  # [B, L, n] @ [n, d]
        return vectors


class Projection(nn.Linear):
    """[..., n_in] to [..., n_out]: a linear map and an activation."""

    def __init__(self, n_in: int, n_out: int, activation: str) -> None:
        super().__init__(n_in, n_out)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, input: Tensor) -> Tensor:
        """Map, then activate."""
        activated: Tensor = self.activation(super().forward(input))
        return activated


def projection(n_in: int, n_out: int, activation: str) -> nn.Module:
    """A projection, or the identity where sizes are equal and there is no activation."""
    if n_in == n_out and activation == "none":
        return nn.Identity()
    return Projection(n_in, n_out, activation)


def swap_noise(
    items: Int[Tensor, "B W"], rng: StepRandom, probability: float
) -> Int[Tensor, "B W"]:
    """Replace input items at random by items sampled from the global batch, by frequency.

    Stochastic shared embeddings (SSE, Wu et al. 2019), as in Transformers4Rec, whose version
    changed targets too. Only the item id is replaced, not the side features of its event. Padding
    is neither replaced nor sampled.
    """
    pool = rng.global_items[rng.global_items != PADDING]  # [N]
    # In float64 no number below 1 times N rounds up to N.
    sampled = (rng.uniform("swapped_for").double() * len(pool)).long()
    is_swapped = (rng.uniform("is_swapped") < probability) & (items != PADDING)
    return torch.where(is_swapped, pool[sampled], items)


def hide_new_items(
    items: Int[Tensor, "B W"], n_old: int, rng: StepRandom, probability: float
) -> Int[Tensor, "B W"]:
    """Read input items beyond the first `n_old` of the catalogue as unknown, at random.

    Such items are new since the last fit, as are the items that will be unknown when the model is
    used, so the `unknown` vector is trained in similar contexts. Old items are never hidden.
    """
    is_new = items >= N_RESERVED + n_old
    is_hidden = is_new & (rng.uniform("is_unknown") < probability)
    return items.masked_fill(is_hidden, UNKNOWN)
