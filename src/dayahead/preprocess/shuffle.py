"""Tables scattered over scratch files by a key and gathered by it again: our one shuffle.

Each task writes one Arrow file with batches of one key each; whoever gathers a key reads its
batches of every file. So no task holds more than its own rows, and types pass through unchanged.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.files import written_whole

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
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
    """Write tables to one file, a batch per table and value of its keys (one per row)."""
    tables = iter(tables)
    first = next(tables)
    found: list[int] = []
    # Whole or not at all: the task of a worker that died runs again on another.
    with (
        written_whole(path) as temporary,
        pa.ipc.new_file(str(temporary), first[0].schema, options=_OPTIONS) as file,
    ):
        for table, keys in chain([first], tables):
            for key, rows in _by_key(table, keys):
                file.write_table(rows)
                found.append(key)
    with written_whole(_keys_path(path)) as temporary, temporary.open("wb") as out:
        np.save(out, np.array(found, dtype=np.int64))


def gather(paths: Sequence[Path], key: int) -> pa.Table:
    """Read the rows of one key from every file; columns that one lacks are null there."""
    tables = []
    for path in paths:
        places = np.flatnonzero(np.load(_keys_path(path)) == key)
        with pa.OSFile(str(path)) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(int(place)) for place in places]
            tables.append(pa.Table.from_batches(batches, file.schema))
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _by_key(table: pa.Table, keys: Keys) -> Iterator[tuple[int, pa.Table]]:
    # A small type makes numpy's stable sort a radix sort.
    order = np.argsort(keys.astype(np.min_scalar_type(keys.max(initial=0))), kind="stable")
    ordered = keys[order]
    table = table.combine_chunks().take(order).combine_chunks()
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1), len(table)]
    for begin, end in pairwise(edges):
        if end > begin:
            yield int(ordered[begin]), table.slice(begin, end - begin)


def _keys_path(path: Path) -> Path:
    return path.with_suffix(".keys")
