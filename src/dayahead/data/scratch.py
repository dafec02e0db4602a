"""Tables scattered over scratch files by a key and gathered by it again: our one shuffle.

Each task writes one file with row groups of one key each; whoever gathers a key reads its row
groups of every file. So no task holds more than its own rows, and types pass through unchanged.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.files import written_whole

_KEY = "_key"
Keys = NDArray[np.int64]
Hashes = NDArray[np.uint64]


def hashes_of(values: pa.ChunkedArray | pa.Array) -> Hashes:
    """Hash texts, the same on every machine (SipHash, 64 bits); null is a value like others."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    coded = values.dictionary_encode()
    known = coded.dictionary.to_numpy(zero_copy_only=False)
    of_value = pd.util.hash_array(known, categorize=False)
    null = np.uint64(np.iinfo(np.uint64).max)
    found: Hashes = np.append(of_value, null)[coded.indices.fill_null(-1).to_numpy()]
    return found


def buckets(ids: pa.ChunkedArray, n_buckets: int) -> Keys:
    """Give each id a bucket in [0, n_buckets), the same on every machine."""
    return (hashes_of(ids) % np.uint64(n_buckets)).astype(np.int64)


def scatter(tables: Iterable[tuple[pa.Table, Keys]], path: Path) -> None:
    """Write tables to one file, a row group per table and value of its keys (one per row)."""
    tables = iter(tables)
    table, keys = next(tables)
    schema = table.schema.append(pa.field(_KEY, pa.int64()))
    # Whole or not at all: the task of a worker that died runs again on another.
    with (
        written_whole(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="lz4") as writer,
    ):
        _write(writer, table, keys)
        for table, keys in tables:
            _write(writer, table, keys)


def _write(writer: pq.ParquetWriter, table: pa.Table, keys: Keys) -> None:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    table = table.take(order).append_column(_KEY, pa.array(ordered))
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1), len(table)]
    for begin, end in pairwise(edges):
        writer.write_table(table.slice(begin, end - begin), row_group_size=max(end - begin, 1))


def gather(paths: Sequence[Path], key: int) -> pa.Table:
    """Read the rows of one key from every file."""
    # What one file lacks is null.
    schema = pa.unify_schemas([pq.read_schema(path) for path in paths])
    files = pa_dataset.dataset([str(path) for path in paths], schema=schema)
    table = files.to_table(filter=pc.field(_KEY) == key)
    return table.drop_columns([_KEY]).combine_chunks()
