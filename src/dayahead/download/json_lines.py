"""JSON lines as rows: an object on each line, in columns of one type each."""

import codecs
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from dayahead.core.errors import SourceError
from dayahead.dataset.schema import SourceConfig
from dayahead.download.rows import EXAMPLES, Records, refused, require_columns, without_nulls

BLOCK = 8 << 20
"""Bytes of text held at a time."""
_SAMPLE = 1000
"""Lines that tell numbers from text."""


def read_json_lines(
    stream: io.BufferedReader,
    name: str,
    source: SourceConfig,
    columns: Mapping[str, pa.DataType],
    *,
    strict: bool,
) -> Iterator[Records]:
    """Read some members of the objects.

    Args:
        stream: The file's text; not empty.
        name: The file, for messages.
        source: Which texts are nulls.
        columns: Members, with the type they are to become.
        strict: Whether a line that cannot be read is an error, or is left out and told.

    Raises:
        SourceError: a column is missing, or a line cannot be read and `strict` is set.
    """
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    schema = None
    first = 1
    while lines := stream.readlines(BLOCK):
        if schema is None:
            schema = _schema(lines, columns, name, strict=strict)
        records = _records(lines, schema, name, first)
        if strict and records.faults:
            raise SourceError(records.faults[0])
        yield Records(
            without_nulls(records.table, source.nulls),
            name,
            "line",
            first,
            records.refused,
            records.faults,
        )
        first += len(lines)


def _schema(
    lines: list[bytes], columns: Mapping[str, pa.DataType], name: str, *, strict: bool
) -> pa.Schema:
    """Tell numbers from text by the first lines; Arrow alone would guess times and lose digits."""
    objects = []
    told = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for number, line in islice(told, _SAMPLE):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            entry = f"not a JSON object: {error}"
        if isinstance(entry, dict):
            objects.append(entry)
        elif strict:
            found = entry if isinstance(entry, str) else "expected a JSON object on each line"
            raise SourceError(f"{name}, line {number:,}: {found}")
    require_columns(columns, sorted(set().union(*objects)), name)
    kinds = {column: Counter(type(entry.get(column)) for entry in objects) for column in columns}
    return pa.schema([(column, _type(kinds[column], columns[column])) for column in columns])


def _type(kinds: Counter[type], wanted: pa.DataType) -> pa.DataType:
    """The type that most values have: those of another one are faults."""
    numbers = kinds[int] + kinds[float]
    if max(kinds[str], kinds[bool]) >= max(numbers, 1):
        return pa.string() if kinds[str] >= kinds[bool] else pa.bool_()
    if kinds[float] or pa.types.is_floating(wanted):
        return pa.float64()
    return pa.int64() if numbers else pa.string()


def _records(lines: list[bytes], schema: pa.Schema, name: str, first: int) -> Records:
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parsed(some: list[bytes]) -> pa.Table:
        rows = [line for line in some if not line.isspace()]
        if not rows:
            return schema.empty_table()  # Arrow refuses what holds nothing but blank lines
        if not all(line.lstrip().startswith(b"{") for line in rows):
            raise pa.ArrowInvalid("no object; of a null Arrow 25 makes a row, or dies")
        text = b"".join(some)
        whole = pa_json.ReadOptions(block_size=len(text) + 1)  # no row across two blocks
        table = pa_json.read_json(pa.BufferReader(text), whole, options)
        if table.num_rows != len(rows):
            raise pa.ArrowInvalid("an object over several lines, or several on one")
        return table

    try:
        return Records(parsed(lines), name, "line", first)
    except pa.ArrowException:
        bad = list(refused(lines, parsed))
    kinds = ", ".join(f"{field.name}: {field.type}" for field in schema)
    faults = (
        f"{name}, line {first + index:,}: expected a JSON object with {kinds} (as in the lines "
        f"before), found {lines[index].decode(errors='replace').strip()[:300]}"
        for index in bad[:EXAMPLES]
    )
    places = np.cumsum([not line.isspace() for line in lines]) - 1  # blank lines are no rows
    kept = np.delete(np.arange(len(lines)), bad)
    return Records(
        parsed([lines[index] for index in kept]),
        name,
        "line",
        first,
        tuple(places[bad].tolist()),
        tuple(faults),
    )
