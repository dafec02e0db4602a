"""The shuffle: tables written by key and read by key; and lookup tables for later runs.

Each task writes one Arrow file whose batches have one key each; the task of a key reads its
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
from dayahead.core.ragged import ranges
from dayahead.features.arrays import Ints, is_new

Hashes = NDArray[np.uint64]
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_HASH = "_hash"


def hash_values(values: pa.ChunkedArray | pa.Array) -> Hashes:
    """Hash strings, the same on every machine (SipHash, 64 bits); null has a hash too."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    coded = values.dictionary_encode()
    known = coded.dictionary.to_numpy(zero_copy_only=False)
    # Each distinct value is hashed once.
    of_value = pd.util.hash_array(known, categorize=False)
    null = np.uint64(np.iinfo(np.uint64).max)
    found: Hashes = np.append(of_value, null)[coded.indices.fill_null(-1).to_numpy()]
    return found


def bucket_of(values: pa.ChunkedArray, n_buckets: int) -> Ints:
    """Return a bucket in [0, n_buckets) for each string, the same on every machine."""
    return (hash_values(values) % np.uint64(n_buckets)).astype(np.int64)


def write_shuffled(tables: Iterable[tuple[pa.Table, Ints]], path: Path) -> None:
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
    # The key of each batch, so that a reader of some keys skips the other batches.
    with written_whole(path.with_suffix(".keys")) as temporary:
        np.array(found, dtype=np.int64).tofile(temporary)


def read_shuffled(paths: Sequence[Path], keys: int | Sequence[int]) -> pa.Table:
    """Read the rows of some keys from every file; columns that one lacks are null there."""
    tables = []
    for path in paths:
        found = np.fromfile(path.with_suffix(".keys"), dtype=np.int64)
        batches = np.flatnonzero(np.isin(found, keys))
        with pa.OSFile(str(path)) as source:
            file = pa.ipc.open_file(source)
            rows = [file.get_batch(int(batch)) for batch in batches]
            tables.append(pa.Table.from_batches(rows, file.schema))
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _by_key(table: pa.Table, keys: Ints) -> Iterator[tuple[int, pa.Table]]:
    # A small type makes numpy's stable sort a radix sort.
    order = np.argsort(keys.astype(np.min_scalar_type(keys.max(initial=0))), kind="stable")
    ordered = keys[order]
    table = table.combine_chunks().take(order).combine_chunks()
    for begin, end in pairwise([*np.flatnonzero(is_new(ordered)), len(table)]):
        yield int(ordered[begin]), table.slice(begin, end - begin)


def write_lookup(path: Path, hashes: Hashes, rows: pa.Table) -> None:
    """Write rows sorted by hash; mapped into memory, `look_up` reads only what it needs.

    So looking up what a day's events need costs as much as that day, however long the log is.
    """
    order = np.argsort(hashes, kind="stable")
    rows = rows.take(order).combine_chunks().append_column(_HASH, pa.array(hashes[order]))
    with written_whole(path) as temporary, pa.ipc.new_file(str(temporary), rows.schema) as file:
        file.write_table(rows, max_chunksize=max(len(rows), 1))


def look_up(paths: Sequence[Path], hashes: Hashes) -> list[tuple[pa.Table, Ints]]:
    """Find rows by hash: per file, the rows found, and for each its hash's position in `hashes`."""
    wanted, first = np.unique(hashes, return_index=True)
    found = []
    for path in paths:
        rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        known = rows[_HASH].to_numpy()
        low = np.searchsorted(known, wanted, side="left")
        counts = np.searchsorted(known, wanted, side="right") - low
        if counts.any():
            taken = rows.drop_columns([_HASH]).take(ranges(low, counts))
            found.append((taken, np.repeat(first, counts)))
    return found
