"""Item vectors from a file, as initial rows of the item table."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from dayahead.core.columns import INDEX, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError
from dayahead.model.embeddings import PretrainedRows

VECTOR = "vector"


def read_item_vectors(path: Path, vocabulary: pa.Table, dim: int) -> PretrainedRows:
    """Read a parquet file of `value` (raw item id) and `vector` (list of `dim` numbers).

    Args:
        path: of the file; items that are not in the vocabulary are passed over.
        vocabulary: of the items, whose raw values say which row a vector is for.
        dim: size of a row of the item table.

    Raises:
        ConfigError: the file cannot be read, has other columns or other ids, names an item twice
            or none of the vocabulary, or a vector is of another size or not finite.
    """
    table = _read(path)
    values = _cast(path, table[VALUE], vocabulary[VALUE].type)
    if pc.count_distinct(values).as_py() < len(values):
        raise _misfit(path, "an item's value comes twice", "one vector for each item")
    lists = _cast(path, table[VECTOR], pa.list_(pa.float32())).combine_chunks()
    sizes = pc.unique(pc.list_value_length(lists)).to_pylist()
    if sizes != [dim]:
        raise _misfit(
            path,
            f"vectors of {', '.join(map(str, sizes)) or 'no'} numbers",
            f"{dim} numbers in each, as model.item_embedding_dim (or else model.d_model) says",
        )
    vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    if not np.isfinite(vectors).all():
        raise _misfit(path, "a vector with a null or a number that is not finite", "numbers")
    places = pc.index_in(values, value_set=vocabulary[VALUE].combine_chunks()).combine_chunks()
    is_known = places.is_valid().to_numpy(zero_copy_only=False)
    if not is_known.any():
        raise _misfit(path, "no item of the data set", "raw item ids in the column value")
    indices = vocabulary[INDEX].take(places.drop_null()).to_numpy().astype(np.int64)
    return PretrainedRows(
        rows=torch.from_numpy(indices - N_RESERVED), vectors=torch.from_numpy(vectors[is_known])
    )


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, columns=[VALUE, VECTOR], partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise _misfit(path, str(error), "a parquet file with the columns value, vector") from None


def _cast(path: Path, column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(wanted)
    except pa.ArrowException as error:
        raise _misfit(path, str(error), f"{wanted}") from None


def _misfit(path: Path, found: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"params.yaml: model.pretrained_items: {path}: expected {wanted}, found {found}; mend the "
        f"file, or set model.pretrained_items to null"
    )
