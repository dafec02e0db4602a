"""JSON as batches of rows: by Arrow where a column has one type, else value by value, alike."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download import batches
from dayahead.download.archives import RawFile
from dayahead.download.batches import (
    EXAMPLES,
    LENIENT,
    UNREADABLE,
    Columns,
    Indices,
    RawBatch,
    check_columns,
)
from dayahead.download.json_values import (
    MISSING,
    Number,
    cell_of,
    objects,
    record_of,
    rows_of,
    text_of,
)
from dayahead.download.nested import check_list, flat
from dayahead.download.text import Text, printable
from dayahead.download.values import EXACT

_SAMPLE = 200
"""Number of lines of a block from which the types of the columns are inferred."""
_CHUNK = 1 << 20
SPREAD = re.compile(rb"\[|\{[ \t]*[\r\n]\s*[\"}]")
"""Starts of files with an array of objects, or with objects over several lines."""


def read_json_lines(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool
) -> Iterator[RawBatch]:
    """Read some columns of records: one per line, or one array of them.

    Raises:
        SourceError: a column is in no record or, if `is_strict`, a line is no JSON object.
    """
    text = Text(raw, source, _with_newlines)
    start = text.stream.peek(1).lstrip()
    is_array = SPREAD.match(start) is not None
    file = _JsonFile(text, source, columns, "object" if is_array else "line", is_strict=is_strict)
    of_lines = iter(lambda: text.stream.readlines(batches.BLOCK), [])
    for lines in _array_blocks(text) if is_array else of_lines:
        yield file.batch(lines)
    file.check_missing()


def _with_newlines(lines: bytes) -> bytes:
    return lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in lines else lines


def _array_blocks(text: Text) -> Iterator[list[bytes]]:
    chunks = iter(lambda: text.stream.read(_CHUNK), b"")
    lines, n_bytes = [], 0
    for line in objects(codecs.iterdecode(chunks, "utf-8"), text.name):
        lines.append(line)
        n_bytes += len(line)
        if n_bytes >= batches.BLOCK:
            yield lines
            lines, n_bytes = [], 0
    if lines:
        yield lines


class _JsonFile:
    """The records of a file."""

    def __init__(
        self, text: Text, source: SourceConfig, columns: Columns, unit: str, *, is_strict: bool
    ) -> None:
        self._text = text
        self._columns = columns
        self._explode = source.explode
        self._nulls = source.nulls
        self._unit = unit
        self._is_strict = is_strict
        self._schema: pa.Schema | None = None
        self._missing = set(columns)
        """Columns that no record had so far."""
        self._keys: set[str] = set()
        """Paths in the first records, for messages."""
        self._n_rows = 0
        self._n_lines = 0

    def batch(self, lines: list[bytes]) -> RawBatch:
        """Return the rows of the next lines."""
        rows = list(filter(None, map(bytes.strip, lines)))
        numbers = np.arange(len(lines))
        if len(rows) < len(lines):
            numbers = np.flatnonzero([not line.isspace() for line in lines])
        if not self._keys:
            self._keys = _keys(rows[:_SAMPLE], self._explode)
        found = self._fast(rows, numbers) or self._exact(rows, numbers)
        self._n_lines += len(lines)
        self._n_rows += found.n_rows
        return self._text.without_marks(found)

    def check_missing(self) -> None:
        """Raise SourceError if a column was in no record at all."""
        if self._explode is not None and self._keys and not self._n_rows:
            check_list(self._explode, self._keys, self._text.name)
        if self._keys and self._n_rows:
            found = sorted(self._keys | (set(self._columns) - self._missing))
            check_columns(self._columns, found, self._text.name, "source.explode")

    def _batch(self, table: pa.Table, lines: Indices) -> RawBatch:
        """Return a batch without rows left out; `lines` are those of its rows, from 0."""
        name, n = self._text.name, self._n_lines + 1
        if self._explode is not None:
            return RawBatch(table, name, "element", self._n_rows + 1, lines + n)
        is_gapless = len(lines) == 0 or lines[-1] == len(lines) - 1
        return RawBatch(table, name, self._unit, n, None if is_gapless else lines + n)

    # Arrow: all lines of a block at once, each column of one type.

    def _fast(self, rows: list[bytes], numbers: Indices) -> RawBatch | None:
        """Read lines with Arrow; None where that could differ from reading each value."""
        if {row[0] for row in rows} != {ord("{")} or {row[-1] for row in rows} != {ord("}")}:
            return None  # Arrow 25 turns null into a row, or crashes
        text = b"\n".join(rows)
        if any("." in column and _is_ambiguous(column, text) for column in self._columns):
            return None
        for schema in (self._schema, None):
            known = schema or self._inferred(rows[:_SAMPLE])
            if known is not None and (found := self._parsed(text, known, len(rows))) is not None:
                self._schema = known
                table, records = found
                self._note_present(table, text)
                return self._batch(table, numbers if records is None else numbers[records])
        return None

    def _parsed(self, text: bytes, schema: pa.Schema, n: int) -> tuple[pa.Table, Any] | None:
        options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        whole = pa_json.ReadOptions(block_size=len(text) + 1)  # no row across two blocks
        try:
            nested = pa_json.read_json(pa.BufferReader(text), whole, options)
        except pa.ArrowException:
            return None
        if nested.num_rows != n:
            return None  # an object over several lines, or several on one
        table, records = flat(nested, self._columns, self._explode)
        for index, (name, wanted) in enumerate(self._columns.items()):
            values = _settled(table[name].combine_chunks(), wanted, self._nulls)
            if values is None:
                return None
            table = table.set_column(index, name, values)
        return table, records

    def _inferred(self, rows: list[bytes]) -> pa.Schema | None:
        """Return a schema of the types that most of these records have; None: no schema fits."""
        tree: dict[str, Any] = {}
        if self._explode is not None and not any(
            f"{column}.".startswith(f"{self._explode}.") for column in self._columns
        ):
            return None  # it would lack the list
        for column, wanted in self._columns.items():
            kinds = _kinds(rows, column, self._explode)
            is_key = any(f'"{column}"'.encode() in row for row in rows)
            path = [column] if is_key else column.split(".")
            branch = tree
            for name in path[:-1]:
                branch = branch.setdefault(name, {})
                if not isinstance(branch, dict):
                    return None
            if path[-1] in branch:
                return None
            branch[path[-1]] = _arrow_type(kinds, wanted)
        return pa.schema([_field(name, each, "", self._explode) for name, each in tree.items()])

    def _note_present(self, table: pa.Table, text: bytes) -> None:
        """Note the columns that have a value or, if all are null, whose key is there."""
        for column in list(self._missing):
            key = f'"{column.rpartition(".")[2]}"'.encode()
            if table[column].null_count < table.num_rows or key in text:
                self._missing.discard(column)

    # Value by value.

    def _exact(self, rows: list[bytes], numbers: Indices) -> RawBatch:
        cells: list[list[str | None]] = []
        lines: list[int] = []
        invalid: list[int] = []
        errors: list[str] = []
        for number, line in zip(numbers.tolist(), rows, strict=True):
            for values in self._rows(line):
                if isinstance(values, ValueError):
                    invalid.append(len(lines))
                    errors.append(self._error(number, values, line))
                else:
                    cells.append(values)
                lines.append(number)
        columns = zip(*cells, strict=True) if cells else [()] * len(self._columns)
        arrays = [pa.array(values, pa.string()) for values in columns]
        self._text.has_marks |= any(rb"\u" in line for line in rows)  # half of a pair
        batch = self._batch(pa.table(arrays, names=list(self._columns)), np.array(lines, np.int64))
        left_out = {UNREADABLE: np.array(invalid, np.int64)} if invalid else {}
        return replace(batch, left_out=left_out, errors=tuple(errors[:EXAMPLES]))

    def _error(self, number: int, error: ValueError, line: bytes) -> str:
        where = f"{self._text.name}, {self._unit} {self._n_lines + number + 1:,}"
        if self._is_strict:
            shown = printable(line.decode())
            raise SourceError(f"{where}: {error}; found {shown}. {LENIENT}")
        return f"{where}: {error}"

    def _rows(self, line: bytes) -> Iterator[list[str | None] | ValueError]:
        """Yield the values, or what is wrong, of each row of a line."""
        try:
            record = record_of(line)
            for each, element in rows_of(record, self._explode):
                yield self._row(each, element)
        except ValueError as error:
            yield error

    def _row(self, record: dict[str, Any], element: Any) -> list[str | None] | ValueError:  # noqa: ANN401
        values = []
        for column, wanted in self._columns.items():
            value = cell_of(record, element, column, self._explode)
            if value is not MISSING:
                self._missing.discard(column)
            try:
                text = text_of(value, wanted)
            except ValueError as error:
                return ValueError(f"column {column} {error}")
            is_null = text in self._nulls and not isinstance(value, Number | bool)
            values.append(None if is_null else text)
        return values


def _keys(lines: list[bytes], explode: str | None) -> set[str]:
    """Return the paths in records; of lists, only the exploded one has some."""
    found: set[str] = set()
    for line in lines:
        with suppress(ValueError):
            found.update(_paths(record_of(line), "", explode))
    return found


def _paths(value: Any, before: str, explode: str | None) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, list) and value and before == f"{explode}.":
        value = value[0]
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield before + key
        yield from _paths(inner, f"{before}{key}.", explode)


def _is_ambiguous(column: str, text: bytes) -> bool:
    """Return whether a name with dots may be a key in some records and a path in others."""
    root = column.partition(".")[0]
    return f'"{column}"'.encode() in text and f'"{root}"'.encode() in text


def _kinds(rows: list[bytes], column: str, explode: str | None) -> Counter[type]:
    """Count the types of a column's values."""
    found: Counter[type] = Counter()
    for row in rows:
        try:
            record = json.loads(row)
            pairs = list(islice(rows_of(record, explode), 20)) if record else []
        except (ValueError, RecursionError):
            continue
        found.update(type(cell_of(each, element, column, explode)) for each, element in pairs)
    return found


def _arrow_type(kinds: Counter[type], wanted: pa.DataType) -> pa.DataType:
    """Return the type of most values."""
    if pa.types.is_list(wanted):
        return pa.list_(pa.float64()) if kinds[list] else pa.string()
    numbers = kinds[int] + kinds[float]
    if max(kinds[str], kinds[bool]) > numbers:
        return pa.string() if kinds[str] >= kinds[bool] else pa.bool_()
    if kinds[float] or pa.types.is_floating(wanted):
        return pa.float64()
    return pa.int64() if numbers or pa.types.is_integer(wanted) else pa.string()


def _field(name: str, tree: Any, before: str, explode: str | None) -> pa.Field:  # noqa: ANN401
    path = before + name
    kind = tree
    if isinstance(tree, dict):
        kind = pa.struct([_field(each, inner, f"{path}.", explode) for each, inner in tree.items()])
    return pa.field(name, pa.list_(kind) if path == explode else kind)


def _settled(values: pa.Array, wanted: pa.DataType, nulls: tuple[str, ...]) -> pa.Array | None:
    """Apply marks of nulls and write numbers as reading each value does; None: it could differ."""
    if pa.types.is_string(values.type):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return pc.if_else(pc.is_in(values, pa.array(nulls, pa.string())), None, values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
        if not pa.types.is_floating(wanted):
            is_whole = pc.and_(
                pc.equal(pc.floor(values), values), pc.less(pc.abs(values), float(EXACT[64]))
            )
            whole = pc.all(is_whole).as_py()
            if whole is not False:
                return values.cast(pa.int64())
            return values if pa.types.is_timestamp(wanted) else None
    if pa.types.is_boolean(values.type) and not pa.types.is_string(wanted):
        return None
    return values
