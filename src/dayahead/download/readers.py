"""Raw files (CSV, JSON lines, parquet) as batches of rows, values as written, bounded memory."""

import codecs
import csv
import io
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.archives import RawFile, wrap_errors

BLOCK = 8 << 20
"""Bytes of text per batch; for parquet, rows per batch are a 64th of this."""
EXAMPLES = 3
"""Maximum number of invalid rows that messages and reports show."""
QUOTE_ADVICE = "If quotes are ordinary characters there, set source.quote to null"
_MAX_HEADER = 1 << 20
"""Maximum number of bytes of a csv header."""
_SAMPLE = 1000
"""Number of JSON lines from which the types of the columns are inferred."""
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
Columns = Mapping[str, pa.DataType]
"""Source columns, with the type to which they will be converted."""
_Sliceable = TypeVar("_Sliceable", pa.Array, list[bytes])


@dataclass(frozen=True)
class RawBatch:
    """Consecutive rows of one raw file."""

    table: pa.Table
    """The requested columns: binary (csv), or of the file's types (JSON lines, parquet)."""
    name: str
    """The file, for messages."""
    unit: str
    """Unit in which rows are counted: line or row."""
    first: int
    """Number of the first row in that unit, from 1."""
    invalid: tuple[int, ...] = ()
    """Indices in the batch, from 0, of rows that could not be parsed and are not in `table`."""
    errors: tuple[str, ...] = ()
    """Location and error of the first of them."""
    multiline: npt.NDArray[np.bool_] | None = None
    """For csv: marks rows with a value that spans lines, in any column of the file."""

    @property
    def n_rows(self) -> int:
        """Rows in the file, invalid ones included."""
        return int(self.table.num_rows) + len(self.invalid)

    def indices(self) -> npt.NDArray[np.int64]:
        """Return each table row's index in the batch, invalid rows counted."""
        return np.delete(np.arange(self.n_rows), self.invalid)

    def location(self, index: int) -> str:
        """Return file and number of a row of `table`, for messages (empty lines do not count)."""
        return f"{self.name}, {self.unit} {self.first + int(self.indices()[index]):,}"


def find_invalid(values: _Sliceable, convert: Callable[[_Sliceable], object]) -> Iterator[int]:
    """Find by bisection, in order, the elements that `convert` cannot convert.

    `convert` must raise an ArrowException for a slice if and only if it has an invalid element.
    """
    spans = [(0, len(values))]
    while spans:
        low, high = spans.pop()
        try:
            convert(values[low:high])
        except pa.ArrowException:
            if high - low == 1:
                yield low
            else:
                middle = (low + high) // 2
                # The lower half is on top of the stack, so that indices are found in order.
                spans += [(middle, high), (low, middle)]


def read_batches(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool = True
) -> Iterator[RawBatch]:
    """Read some columns of a raw file.

    If `is_strict`, an invalid line of JSON is an error; otherwise the batch lists it. A csv row
    with too many or too few values always is one: the rows after it may be split wrongly too.

    Raises:
        SourceError: the file is empty or damaged, or a column is missing.
    """
    with wrap_errors(raw.name):
        if source.format == "jsonl":
            yield from _read_json_lines(raw, source, columns, is_strict=is_strict)
        else:
            read = _read_csv if source.format == "csv" else _read_parquet
            yield from read(raw, source, columns)


def _buffered(raw: RawFile) -> io.BufferedReader:
    stream = io.BufferedReader(raw.stream, 1 << 20)
    if not stream.peek(1):
        raise SourceError(f"{raw.name}: is empty; expected rows. Fetch or copy it again")
    return stream


def _check_columns(columns: Columns, found: Sequence[str], name: str) -> None:
    """Check that each column is in the file exactly once."""
    for problem, bad in (
        ("no column", [column for column in columns if column not in found]),
        ("more than one column", [column for column in columns if found.count(column) > 1]),
    ):
        if bad:
            raise SourceError(
                f"{name}: {problem} {', '.join(bad)}; it has {', '.join(map(str, found))[:500]}. "
                f"Correct columns, time, features or source.delimiter in the data set's file"
            )


def _read_csv(raw: RawFile, source: SourceConfig, columns: Columns) -> Iterator[RawBatch]:
    stream = _buffered(raw)
    header = list(source.header) if source.header else _header_line(stream, raw.name, source)
    _check_columns(columns, header, raw.name)
    if not stream.peek(1):
        return  # a header without rows, as for an hour without events
    start = first = 1 if source.header else 2
    positions = [header.index(column) for column in columns]
    try:
        for batch in _open_csv(stream, len(header), positions, source):
            table = pa.Table.from_batches([batch])
            multiline = _multiline(table, source)
            table = table.select(list(map(str, positions))).rename_columns(list(columns))
            yield RawBatch(table, raw.name, "line", first, multiline=multiline)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        match = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
        line = f", line {int(match[1]) + start - 1:,}" if match else ""
        reason = (match[2] if match else str(error))[:300].replace("\n", "\\n")
        advice = f". {QUOTE_ADVICE}" if source.quote and source.quote in reason else ""
        raise SourceError(f"{raw.name}{line}: not a row of this table: {reason}{advice}") from None


def _open_csv(
    stream: IO[bytes], n_columns: int, positions: Sequence[int], source: SourceConfig
) -> pa_csv.CSVStreamingReader:
    """Read columns called 0, 1, 2 ...: those at `positions`, or all where quotes can span lines."""
    names = list(map(str, range(n_columns)))
    # Read as bytes: values are checked later, where messages can name their line.
    conversion = pa_csv.ConvertOptions(
        include_columns=names if source.quote else [names[position] for position in positions],
        column_types=dict.fromkeys(names, pa.binary()),
        null_values=list(source.nulls),
        strings_can_be_null=True,
    )
    # One thread: only then do errors name the row, and more do not speed up decompression.
    reading = pa_csv.ReadOptions(column_names=names, block_size=BLOCK, use_threads=False)
    quoting = {"quote_char": source.quote or False, "newlines_in_values": True}
    parsing = pa_csv.ParseOptions(delimiter=source.delimiter, **quoting)
    return pa_csv.open_csv(stream, reading, parsing, conversion)


def _multiline(table: pa.Table, source: SourceConfig) -> npt.NDArray[np.bool_]:
    """Mark the rows with a value that spans lines."""
    marks = np.zeros(table.num_rows, bool)
    for values in table.columns if source.quote else ():
        found = pc.match_substring_regex(values, r"[\r\n]")
        marks |= np.asarray(pc.fill_null(found, fill_value=False))
    return marks


def _header_line(stream: io.BufferedReader, name: str, source: SourceConfig) -> list[str]:
    line = bytearray()
    # Byte by byte, so that nothing after the header is consumed.
    while len(line) < _MAX_HEADER and (byte := stream.read(1)) not in (b"", b"\r", b"\n"):
        line += byte
    if byte == b"\r" and stream.peek(1).startswith(b"\n"):
        stream.read(1)
    quoting = {"quotechar": source.quote} if source.quote else {"quoting": csv.QUOTE_NONE}
    try:
        text = line.decode("utf-8-sig")
        return next(csv.reader([text], delimiter=source.delimiter, **quoting), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{name}, line 1: expected column names in UTF-8: {error}") from None


def _read_parquet(raw: RawFile, source: SourceConfig, columns: Columns) -> Iterator[RawBatch]:
    try:
        with _seekable(raw.stream) as stream:
            file = pq.ParquetFile(stream)
            _check_columns(columns, file.schema_arrow.names, raw.name)
            first = 1
            for batch in file.iter_batches(batch_size=BLOCK // 64, columns=list(columns)):
                table = _plain(pa.Table.from_batches([batch]), source.nulls)
                yield RawBatch(table, raw.name, "row", first)
                first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise SourceError(f"{raw.name}: not readable as parquet: {error}") from None


def _plain(table: pa.Table, nulls: Sequence[str]) -> pa.Table:
    """Decode dictionaries, give text, bytes and floats one type each; `nulls` become null."""
    marks = pa.array(nulls, pa.string())
    for index, field in enumerate(table.schema):
        values = table.column(index)
        if pa.types.is_dictionary(field.type):
            values = pc.dictionary_decode(values)
        if any(test(values.type) for test in _TEXT):
            values = values.cast(pa.binary())
            with suppress(pa.ArrowInvalid):  # not UTF-8: left as bytes, so that messages name rows
                values = values.cast(pa.string())
            values = pc.if_else(pc.is_in(values, marks.cast(values.type)), None, values)
        elif any(test(values.type) for test in _BYTES):
            values = values.cast(pa.binary())
        elif pa.types.is_float16(values.type):
            values = values.cast(pa.float32())
        table = table.set_column(index, field.name, values)
    return table


@contextmanager
def _seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a compressed stream to a temporary file, because parquet is read from its end."""
    if isinstance(stream, pa.OSFile):
        yield stream
        return
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(stream, spooled, 1 << 20)
        yield spooled


def _read_json_lines(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool
) -> Iterator[RawBatch]:
    stream = _buffered(raw)
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    schema = None
    first = 1
    while lines := stream.readlines(BLOCK):
        if schema is None:
            schema = _infer_schema(lines, columns, raw.name, is_strict=is_strict)
        table, invalid, errors = _parse_lines(lines, schema, raw.name, first)
        if is_strict and errors:
            raise SourceError(errors[0])
        table = _plain(table, source.nulls)
        yield RawBatch(table, raw.name, "line", first, invalid, errors)
        first += len(lines)


def _infer_schema(lines: list[bytes], columns: Columns, name: str, *, is_strict: bool) -> pa.Schema:
    """Infer types from the first lines; Arrow itself would guess times and lose digits."""
    objects = []
    written = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for number, line in islice(written, _SAMPLE):
        problem = "expected a JSON object on each line"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            entry, problem = None, f"not a JSON object: {error}"
        if isinstance(entry, dict):
            objects.append(entry)
        elif is_strict:
            raise SourceError(f"{name}, line {number:,}: {problem}")
    if objects:  # otherwise all these lines are unreadable
        _check_columns(columns, sorted(set().union(*objects)), name)
    kinds = {column: Counter(type(entry.get(column)) for entry in objects) for column in columns}
    return pa.schema([(column, _json_type(kinds[column], columns[column])) for column in columns])


def _json_type(kinds: Counter[type], wanted: pa.DataType) -> pa.DataType:
    """Return the type of most values; values of another type are invalid."""
    numbers = kinds[int] + kinds[float]
    if max(kinds[str], kinds[bool]) >= max(numbers, 1):
        return pa.string() if kinds[str] >= kinds[bool] else pa.bool_()
    if kinds[float] or pa.types.is_floating(wanted):
        return pa.float64()
    return pa.int64() if numbers else pa.string()


def _parse_lines(
    lines: list[bytes], schema: pa.Schema, name: str, first: int
) -> tuple[pa.Table, tuple[int, ...], tuple[str, ...]]:
    """Return the table of the valid lines, the rows that are invalid, and messages."""
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parse(some: list[bytes]) -> pa.Table:
        rows = [line for line in some if not line.isspace()]
        if not rows:
            return schema.empty_table()  # Arrow rejects input of blank lines only
        if not all(line.lstrip().startswith(b"{") for line in rows):
            raise pa.ArrowInvalid("not an object; Arrow 25 turns null into a row, or crashes")
        text = b"".join(some)
        whole = pa_json.ReadOptions(block_size=len(text) + 1)  # no row across two blocks
        table = pa_json.read_json(pa.BufferReader(text), whole, options)
        if table.num_rows != len(rows):
            raise pa.ArrowInvalid("an object over several lines, or several on one")
        return table

    try:
        return parse(lines), (), ()
    except pa.ArrowException:
        bad = list(find_invalid(lines, parse))
    kinds = ", ".join(f"{field.name}: {field.type}" for field in schema)
    errors = (
        f"{name}, line {first + index:,}: expected a JSON object with {kinds} (as in the lines "
        f"before), found {lines[index].decode(errors='replace').strip()[:300]}"
        for index in bad[:EXAMPLES]
    )
    row_of_line = np.cumsum([not line.isspace() for line in lines]) - 1  # blank lines are no rows
    valid = [lines[index] for index in np.delete(np.arange(len(lines)), bad)]
    return parse(valid), tuple(row_of_line[bad].tolist()), tuple(errors)
