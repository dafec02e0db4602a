"""Rows of a raw file as batches of its columns, still as they are written, in bounded memory."""

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dayahead.core.errors import SourceError
from dayahead.dataset.schema import SourceConfig
from dayahead.download.archives import RawFile, damage_told
from dayahead.download.json_lines import read_json_lines
from dayahead.download.rows import Records, require_columns, without_nulls

BLOCK = 8 << 20
"""Bytes of text held at a time; of parquet, a 64th as many rows."""
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def read_records(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType], *, strict: bool = True
) -> Iterator[Records]:
    """Read some columns of a raw file.

    Args:
        raw: The open file.
        source: How it is written.
        columns: Source columns, with the type they are to become.
        strict: Whether a line of JSON that cannot be read is an error, or is left out and told.
            A row of csv with too many or too few values always is one: what follows it may be
            cut wrongly too.

    Raises:
        SourceError: the file is empty or broken, or a column is missing.
    """
    with damage_told(raw.name):
        if source.format == "jsonl":
            stream = _buffered(raw)
            yield from read_json_lines(stream, raw.name, source, columns, strict=strict)
        else:
            read = _read_csv if source.format == "csv" else _read_parquet
            yield from read(raw, source, columns)


def _buffered(raw: RawFile) -> io.BufferedReader:
    stream = io.BufferedReader(raw.stream, 1 << 20)
    if not stream.peek(1):
        raise SourceError(f"{raw.name}: is empty; expected rows. Fetch or copy it again")
    return stream


def _read_csv(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType]
) -> Iterator[Records]:
    stream = _buffered(raw)
    header = list(source.header) if source.header else _header_line(stream, raw.name, source)
    require_columns(columns, header, raw.name)
    first = 1 if source.header else 2
    try:
        for batch in _csv_batches(stream, source, header, columns):
            yield Records(pa.Table.from_batches([batch]), raw.name, "line", first)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise SourceError(_csv_fault(str(error), raw.name, 0 if source.header else 1)) from None


def _header_line(stream: io.BufferedReader, name: str, source: SourceConfig) -> list[str]:
    try:
        text = stream.readline().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{name}, line 1: expected column names in UTF-8: {error}") from None
    return next(csv.reader([text.rstrip("\r\n")], delimiter=source.delimiter), [])


def _csv_batches(
    stream: io.BufferedReader,
    source: SourceConfig,
    header: list[str],
    columns: Mapping[str, pa.DataType],
) -> Iterator[pa.RecordBatch]:
    if not stream.peek(1):
        return  # a header and no rows, as an hour without events has
    yield from pa_csv.open_csv(
        stream,
        # One thread, for only then do errors count rows; it is as fast as unpacking is.
        pa_csv.ReadOptions(column_names=header, block_size=BLOCK, use_threads=False),
        pa_csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
        # As bytes: what a value must be is checked later, where its line can be told.
        pa_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.binary()),
            null_values=list(source.nulls),
            strings_can_be_null=True,
        ),
    )


def _csv_fault(message: str, name: str, header_lines: int) -> str:
    match = re.search(r"Row #(\d+): (.*)", message, re.DOTALL)
    place = f", line {int(match[1]) + header_lines:,}" if match else ""
    return f"{name}{place}: not a row of this table: {(match[2] if match else message)[:300]}"


def _read_parquet(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType]
) -> Iterator[Records]:
    try:
        with _seekable(raw.stream) as stream:
            file = pq.ParquetFile(stream)
            require_columns(columns, file.schema_arrow.names, raw.name)
            first = 1
            for batch in file.iter_batches(batch_size=BLOCK // 64, columns=list(columns)):
                table = without_nulls(_plain_types(pa.Table.from_batches([batch])), source.nulls)
                yield Records(table, raw.name, "row", first)
                first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise SourceError(f"{raw.name}: not readable as parquet: {error}") from None


def _plain_types(table: pa.Table) -> pa.Table:
    """Decode dictionaries; give text and bytes the types that other formats give them."""
    for index, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            kind = pa.string()
        elif any(test(kind) for test in _BYTES):
            kind = pa.binary()
        if kind != field.type:
            column = table.column(index).cast(kind)
            table = table.set_column(index, field.name, column)
    return table


@contextmanager
def _seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Parquet is read from its end: what comes packed goes through a temporary file."""
    if isinstance(stream, pa.OSFile):
        yield stream
        return
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(stream, spooled, 1 << 20)
        yield spooled
