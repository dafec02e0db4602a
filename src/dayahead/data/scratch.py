"""Tables scattered over scratch files by a key and gathered by it again: our one shuffle.

Each task writes one file with a row group per key; whoever gathers a key reads that row group of
every file. So no task holds more than its own rows, and types pass through unchanged.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

_KEY = "_key"


def buckets(ids: pa.ChunkedArray, n_buckets: int) -> NDArray[np.int64]:
    """Give each id a bucket in [0, n_buckets), the same on every machine."""
    coded = ids.combine_chunks().dictionary_encode()
    hashes = pd.util.hash_array(coded.dictionary.to_numpy(zero_copy_only=False), categorize=False)
    of_value = (hashes % np.uint64(n_buckets)).astype(np.int64)
    # A null id, where there may be one, goes to the last bucket.
    codes = coded.indices.fill_null(-1).to_numpy()
    found: NDArray[np.int64] = np.append(of_value, n_buckets - 1)[codes]
    return found


def scatter(table: pa.Table, keys: NDArray[np.int64], path: Path) -> None:
    """Write `table` to one file, a row group per value of `keys` (one per row)."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    table = table.take(order).append_column(_KEY, pa.array(ordered))
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1), len(table)]
    with pq.ParquetWriter(path, table.schema, compression="lz4") as writer:
        for begin, end in pairwise(edges):
            writer.write_table(table.slice(begin, end - begin), row_group_size=max(end - begin, 1))


def gather(paths: Sequence[Path], key: int) -> pa.Table:
    """Read the rows of one key from every file."""
    table = pq.read_table([str(path) for path in paths], filters=pc.field(_KEY) == key)
    return table.drop_columns([_KEY]).combine_chunks()
