"""Embedding tables that grow with the vocabulary, from random or pretrained rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dayahead.core.columns import FIRST_WINDOW, INDEX, N_RESERVED, UNKNOWN, VALUE
from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.rng import derived_seed
from dayahead.windows.items import ItemTable

BLOCK_ROWS = 2**12
"""Rows that are drawn from one seed; growing by one row may draw up to this many."""
VECTOR = "vector"


@dataclass(frozen=True)
class PretrainedRows:
    """Initial values of some rows of a table, instead of random ones."""

    rows: Int[Tensor, " k"]
    """Row numbers from 0, without the reserved indices; may be beyond the table's current size."""
    vectors: Float[Tensor, "k d"]


class GrowingEmbedding(nn.Module):
    """Rows of a vocabulary by index, without the reserved ones.

    Padding is looked up as zeros, an out-of-vocabulary value as the learned vector `unknown`, which
    starts as random as a row: layer norms would magnify the gradient of a zero vector without
    bound. A row's initial value is pretrained, or depends on (seed, row) alone, whenever the table
    grows to hold it.

    Frozen rows keep their initial values; `unknown` learns. The shard says which rows this
    process holds.
    """

    def __init__(
        self, dim: int, std: float, seed: int, *, is_frozen: bool = False, shard: Shard = WHOLE
    ) -> None:
        super().__init__()
        self.std = std
        self.seed = seed
        self.shard = shard
        self.n_rows = 0
        """Rows over all processes, without the reserved indices."""
        self.pretrained: PretrainedRows | None = None
        self.is_restored = False
        """Whether `grow` leaves new rows uninitialised, because a state is loaded next."""
        self.has_sparse_gradient = False
        """Whether the gradient has the rows alone that are looked up."""
        self.weight = nn.Parameter(torch.empty(0, dim), requires_grad=not is_frozen)
        self.unknown = nn.Parameter(normal_rows(1, dim, std, seed, "unknown")[0])

    def grow(self, n_rows: int) -> None:
        """Append rows up to `n_rows` in a new Parameter; a table never shrinks."""
        if n_rows <= self.n_rows:
            return
        old, dim = self.weight, self.weight.shape[1]
        if self.is_restored:
            new = torch.empty(self.shard.n_local(n_rows) - len(old), dim)
        else:
            new = initial_rows(self.n_rows, n_rows, dim, self.std, self.seed, self.shard)
        if self.pretrained:
            held, local = self.shard.local_indices(self.pretrained.rows)
            # Relative to the new rows: earlier pretrained rows become negative and are skipped.
            local = local - self.shard.n_local(self.n_rows)
            is_new = (local >= 0) & (local < len(new))
            new[local[is_new]] = self.pretrained.vectors[held[is_new]]
        rows = with_rows(old.detach(), len(old) + len(new))
        rows[len(old) :] = new
        self.weight = nn.Parameter(rows, requires_grad=old.requires_grad)
        self.n_rows = n_rows

    def holds(self, indices: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """Which vocabulary indices have a row."""
        return (indices >= N_RESERVED) & (indices < N_RESERVED + self.n_rows)

    def forward(self, indices: Int[Tensor, "B L"]) -> Float[Tensor, "B L d"]:
        """Look up vocabulary indices; one beyond the table counts as unknown."""
        is_held = self.holds(indices)
        # Indices without a row read row 0, whose vector is masked out below.
        rows = (indices - N_RESERVED).where(is_held, 0)
        is_sparse = self.has_sparse_gradient
        vectors = self.shard.lookup(self.weight, rows, sparse=is_sparse)  # [B, L, d]
        is_unknown = (indices >= UNKNOWN) & ~is_held
        return vectors * is_held[..., None] + self.unknown * is_unknown[..., None]


def with_rows(held: Float[Tensor, "m ..."], n_rows: int) -> Float[Tensor, "n ..."]:
    """Return a tensor of `n_rows` rows: first those of `held`, then uninitialised ones.

    On the CPU it has spare capacity of an eighth, which takes no memory before it is written to.
    Within the capacity nothing is copied: both tensors then share memory.
    """
    n_values = held.storage_offset() + n_rows * held.shape[1:].numel()
    if held.untyped_storage().nbytes() < n_values * held.itemsize:
        spare = n_rows // 8 if held.device.type == "cpu" else 0
        room = held.new_empty((n_rows + spare, *held.shape[1:]))
        room[: len(held)] = held
        held = room
    return held.as_strided((n_rows, *held.shape[1:]), held.stride(), held.storage_offset())


def initial_rows(
    begin: int, end: int, dim: int, std: float, seed: int, shard: Shard
) -> Float[Tensor, "n d"]:
    """Draw the normal rows of a shard from `begin` to `end`: they depend on (seed, row) alone.

    Only blocks with wanted rows are drawn, and each only up to the last wanted row: numpy draws the
    same first numbers however many follow (its ziggurat method).
    """
    n_before = shard.n_local(begin)
    own = torch.empty(shard.n_local(end) - n_before, dim)
    for block in range(begin // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
        first, last = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, end)
        rows = normal_rows(last - first, dim, std, seed, "rows", block)
        wanted = shard.local_slice(max(begin, first), last)
        held = slice(shard.n_local(max(begin, first)) - n_before, shard.n_local(last) - n_before)
        own[held] = rows[wanted.start - first :: shard.world_size]
    return own


def normal_rows(
    n_rows: int, dim: int, std: float, seed: int, *purpose: str | int
) -> Float[Tensor, "n d"]:
    """Draw normal rows that depend on the seed and the purpose alone."""
    generator = np.random.Generator(np.random.PCG64(derived_seed(seed, *purpose)))
    # numpy, because the rows of a block must not depend on how many are drawn.
    return torch.from_numpy(generator.standard_normal((n_rows, dim), dtype=np.float32)) * std


def read_item_vectors(path: Path, vocabulary: pa.Table, dim: int) -> PretrainedRows:
    """Read a parquet file of `value` (raw item id) and `vector` (list of `dim` numbers).

    Items that are not in the vocabulary, which maps raw values to rows, are ignored.

    Raises:
        ConfigError: the file cannot be read, has other columns or ids of another type, lists an
            item twice or none of the vocabulary, or a vector is of another size or not finite.
    """
    value_type, vector_type = vocabulary[VALUE].type, pa.list_(pa.float32())
    try:
        table = pq.read_table(path, columns=[VALUE, VECTOR], partitioning=None)
        values = table[VALUE].cast(value_type)
        lists = table[VECTOR].cast(vector_type).combine_chunks()
    except (OSError, pa.ArrowException) as error:
        expected = f"a parquet file with the columns value ({value_type}), vector ({vector_type})"
        raise _invalid(path, expected, str(error)) from None
    if values.null_count:
        found = f"{values.null_count} of {len(values)} rows without one"
        raise _invalid(path, "an item id in each row of the column value", found)
    if pc.count_distinct(values).as_py() < len(values):
        raise _invalid(path, "one vector for each item", "an item's value twice")
    sizes = pc.unique(pc.list_value_length(lists)).to_pylist()
    if sizes != [dim]:
        expected = f"{dim} numbers in each vector (model.item_embedding_dim, or else model.d_model)"
        found = f"vectors of {', '.join(map(str, sizes)) or 'no'} numbers"
        raise _invalid(path, expected, found)
    vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    if not np.isfinite(vectors).all():
        raise _invalid(path, "finite numbers", "a vector with a null, NaN or infinity")
    positions = pc.index_in(values, value_set=vocabulary[VALUE].combine_chunks()).combine_chunks()
    is_known = positions.is_valid().to_numpy(zero_copy_only=False)
    if not is_known.any():
        raise _invalid(path, "raw item ids in the column value", "no item of the data set")
    indices = vocabulary[INDEX].take(positions.drop_null()).to_numpy().astype(np.int64)
    return PretrainedRows(
        rows=torch.from_numpy(indices - N_RESERVED), vectors=torch.from_numpy(vectors[is_known])
    )


def item_vectors_of_table(
    table: ItemTable, name: str, first_windows: Sequence[str], dim: int
) -> PretrainedRows:
    """Return a vector of the items table as initial item vectors.

    Args:
        table: the first row of each item, with its `first_window`.
        name: of the vector.
        first_windows: at which the embedding of each item of the vocabulary is drawn. One that the
            table lists only later gets no vector.
        dim: of the item embeddings.

    Raises:
        ConfigError: the vectors are of another size.
    """
    vectors = table.vectors(name, 0 if not len(table.items) else int(table.items[-1]) + 1)
    if vectors.shape[1] != dim:
        raise ConfigError(
            f"params.yaml: model.pretrained_items: {name}: vectors of {vectors.shape[1]} numbers; "
            f"set model.item_embedding_dim to it, or items.vectors.{name}.dimensions to {dim}"
        )
    rows = table.items.astype(np.int64) - N_RESERVED
    is_early = table.rows[FIRST_WINDOW].to_numpy() <= np.asarray(first_windows, object)[rows]
    kept = is_early & vectors[table.items].any(1)
    return PretrainedRows(
        rows=torch.from_numpy(rows[kept]), vectors=torch.from_numpy(vectors[table.items[kept]])
    )


def _invalid(path: Path, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"params.yaml: model.pretrained_items: {path}: expected {expected}, found {found}; correct "
        f"the file, or set model.pretrained_items to null"
    )
