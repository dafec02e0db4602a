"""Rows of a raw file as batches of its columns, still as they are written, in bounded memory."""

import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from dayahead.config.dataset import SourceConfig
from dayahead.data.archives import RawFile, damage_told
from dayahead.errors import SourceError

BLOCK = 8 << 20
"""Bytes of text held at a time; of parquet, a 64th as many rows."""
_SAMPLE = 1000
"""Lines of JSON that tell numbers from text."""
Sliced = TypeVar("Sliced", pa.Array, list[bytes])


@dataclass(frozen=True)
class Records:
    """Consecutive rows of one raw file."""

    table: pa.Table
    """The columns asked for: binary (csv), or what the file says (JSON lines, parquet)."""
    name: str
    """The file, for messages."""
    unit: str
    """What rows are counted in: line or row."""
    first: int
    """Number of the first row in that count, from 1."""

    def place(self, index: int) -> str:
        """Where one of the rows stands, for messages (empty lines are not counted)."""
        return f"{self.name}, {self.unit} {self.first + index:,}"


def read_records(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType]
) -> Iterator[Records]:
    """Read some columns of a raw file.

    Args:
        raw: The open file.
        source: How it is written.
        columns: Source columns, with the type they are to become.

    Raises:
        SourceError: the file is empty or broken, or a column is missing.
    """
    read = {"csv": _read_csv, "jsonl": _read_jsonl, "parquet": _read_parquet}[source.format]
    with damage_told(raw.name):
        yield from read(raw, source, columns)


def first_refused(values: Sliced, convert: Callable[[Sliced], object]) -> int:
    """Return the index of the first element that `convert` refuses, given that it refuses one.

    `values` has a length and slices by [low:high]; `convert` refuses a slice with an
    ArrowException if and only if it holds a bad element.
    """
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values[low:middle])
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _require(columns: Mapping[str, pa.DataType], found: Sequence[str], name: str) -> None:
    missing = [column for column in columns if column not in found]
    if missing:
        raise SourceError(
            f"{name}: no column {', '.join(missing)}; it has {', '.join(map(str, found))[:500]}. "
            f"Correct columns, time, features or source.delimiter in the data set's file"
        )


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
    _require(columns, header, raw.name)
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


def _read_jsonl(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType]
) -> Iterator[Records]:
    stream = _buffered(raw)
    schema = None
    first = 1
    while lines := stream.readlines(BLOCK):
        if schema is None:
            schema = _json_schema(lines, columns, raw.name)
        table = _json_table(lines, schema, raw.name, first)
        yield Records(_without_nulls(table, source.nulls), raw.name, "line", first)
        first += len(lines)


def _json_schema(lines: list[bytes], columns: Mapping[str, pa.DataType], name: str) -> pa.Schema:
    """Tell numbers from text by the first lines; Arrow alone would guess times and lose digits."""
    objects = []
    told = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for number, line in islice(told, _SAMPLE):
        try:
            objects.append(json.loads(line))
        except ValueError as error:
            raise SourceError(f"{name}, line {number:,}: not a JSON object: {error}") from None
        if not isinstance(objects[-1], dict):
            raise SourceError(f"{name}, line {number:,}: expected a JSON object on each line")
    _require(columns, sorted(set().union(*objects)), name)
    kinds = {column: {type(entry.get(column)) for entry in objects} for column in columns}
    return pa.schema([(column, _json_type(kinds[column], columns[column])) for column in columns])


def _json_type(kinds: set[type], wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(wanted) and str not in kinds:
        return wanted
    if float in kinds:
        return pa.float64()
    if bool in kinds:
        return pa.bool_()
    return pa.int64() if int in kinds else pa.string()


def _json_table(lines: list[bytes], schema: pa.Schema, name: str, first: int) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parsed(some: list[bytes]) -> pa.Table:
        text = b"".join(some)
        if not text.strip():
            return schema.empty_table()  # Arrow refuses what holds nothing but blank lines
        whole = pa_json.ReadOptions(block_size=len(text) + 1)  # no row across two blocks
        return pa_json.read_json(pa.BufferReader(text), whole, options)

    try:
        return parsed(lines)
    except pa.ArrowInvalid:
        index = first_refused(lines, parsed)
        kinds = ", ".join(f"{field.name}: {field.type}" for field in schema)
        found = lines[index].decode(errors="replace").strip()[:300]
        raise SourceError(
            f"{name}, line {first + index:,}: expected a JSON object with {kinds} (as in the "
            f"lines before), found {found}"
        ) from None


def _read_parquet(
    raw: RawFile, source: SourceConfig, columns: Mapping[str, pa.DataType]
) -> Iterator[Records]:
    try:
        with _seekable(raw.stream) as stream:
            file = pq.ParquetFile(stream)
            _require(columns, file.schema_arrow.names, raw.name)
            first = 1
            for batch in file.iter_batches(batch_size=BLOCK // 64, columns=list(columns)):
                table = _without_nulls(pa.Table.from_batches([batch]), source.nulls)
                yield Records(table, raw.name, "row", first)
                first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise SourceError(f"{raw.name}: not readable as parquet: {error}") from None


@contextmanager
def _seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Parquet is read from its end: what comes packed goes through a temporary file."""
    if isinstance(stream, pa.OSFile):
        yield stream
        return
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(stream, spooled, 1 << 20)
        yield spooled


def _without_nulls(table: pa.Table, nulls: Sequence[str]) -> pa.Table:
    """Make nulls of the texts that stand for them, as the CSV reader does by itself."""
    marks = pa.array(nulls, pa.string())
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            values = table.column(index)
            kept = pc.if_else(pc.is_in(values, marks), None, values)
            table = table.set_column(index, field, kept)
    return table
