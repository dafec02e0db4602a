"""Parquet as batches of rows: values of the file's types."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download import batches
from dayahead.download.archives import RawFile
from dayahead.download.batches import EXAMPLES, Columns, RawBatch
from dayahead.download.nested import check_paths, flat, roots

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)

_FIXED_SIZE = (
    ". Arrow reads no nulls among lists of one fixed size: write them as lists of any size "
    "(pyarrow.list_ without a size)"
)


def read_parquet(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool
) -> Iterator[RawBatch]:
    """Read some columns of a parquet file; `is_strict` changes nothing: its rows can be parsed.

    Raises:
        SourceError: it is not parquet, or a column is missing or holds records.
    """
    if not raw.head:
        return  # an empty file
    unit = "element" if source.explode else "row"
    n_rows = max(1, batches.BLOCK // (1024 if source.explode else 64))
    try:
        with seekable(raw.stream) as stream:
            file = pq.ParquetFile(stream)
            check_paths(columns, file.schema_arrow, source.explode, raw.name)
            needed = roots(columns, file.schema_arrow.names, source.explode)
            first = 1
            for batch in file.iter_batches(batch_size=n_rows, columns=needed):
                table, _ = flat(pa.Table.from_batches([batch]), columns, source.explode)
                found = _plain(RawBatch(table, raw.name, unit, first), source.nulls)
                yield found
                first += found.n_rows
    except pa.ArrowInvalid as error:
        cure = _FIXED_SIZE if "all lists to be of size" in str(error) else ""
        raise SourceError(f"{raw.name}: not readable as parquet: {error}{cure}") from None


def _plain(batch: RawBatch, nulls: Sequence[str]) -> RawBatch:
    """Decode dictionaries, give text and floats one type each; `nulls` become null."""
    marks = pa.array(nulls, pa.string())
    table = batch.table
    undecodable: dict[int, str] = {}
    for index, field in enumerate(table.schema):
        values = table.column(index).combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = pc.dictionary_decode(values)
        if isinstance(values.type, pa.UuidType):
            texts = [None if each is None else str(each) for each in values.to_pylist()]
            values = pa.array(texts, pa.string())
        if any(test(values.type) for test in (*_TEXT, *_BYTES)):
            values, bad = _decoded(values.cast(pa.binary()))
            for row in bad:
                undecodable.setdefault(row, f"column {field.name}: {values[row]}: not utf-8")
            values = pc.if_else(pc.is_in(values, marks), None, values)
        elif pa.types.is_float16(values.type):
            values = values.cast(pa.float32())
        table = table.set_column(index, field.name, values)
    rows = np.array(sorted(undecodable), np.int64)
    examples = tuple(
        f"{batch.location(row)}: {undecodable[row]}" for row in rows[:EXAMPLES].tolist()
    )
    return replace(batch, table=table, undecodable=rows, undecodable_errors=examples)


def _decoded(values: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    """Return text, and the rows in which bytes that are not UTF-8 became escapes."""
    try:
        return values.cast(pa.string()), ()
    except pa.ArrowInvalid:
        found = values.to_pylist()
    text = [None if each is None else each.decode(errors="backslashreplace") for each in found]
    bad = [row for row, each in enumerate(text) if each is not None and each.encode() != found[row]]
    return pa.array(text, pa.string()), bad


@contextmanager
def seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a compressed stream to a temporary file, because parquet is read from its end."""
    if isinstance(stream, pa.OSFile):
        yield stream
        return
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(stream, spooled, 1 << 20)
        yield spooled
