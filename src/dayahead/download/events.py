"""Raw batches to the event table: the columns, types and times of data/raw."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    ROW,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.errors import SourceError
from dayahead.dataset.columns import ColumnConfig
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.source import SourceConfig
from dayahead.dataset.time import TimeConfig
from dayahead.download.availability import to_limits
from dayahead.download.batches import EXAMPLES, LENIENT, UNREADABLE, RawBatch, find_invalid
from dayahead.download.clocks import Localised, ZoneClock
from dayahead.download.ids import joined, plain_numbers
from dayahead.download.time_advice import advice, text_of
from dayahead.download.times import LATEST, MICROSECONDS, Times, clipped, to_times
from dayahead.download.values import InvalidValuesError, cast_trimmed, decoded, to_int, to_vectors

_LARGEST = float(np.finfo(np.float32).max)
_OF_EVENTS = (EVENT_TIME, SESSION_START)
_WHOLE_NUMBER = "a whole number of at most 64 bits (or set its type to string)"


@dataclass(frozen=True)
class EventBatch:
    """The events of a raw batch."""

    table: pa.Table
    dropped: dict[str, int]
    """Number of rows that are no events, by reason: unreadable, or the column without a value."""
    readable: pa.Table
    """`table`, the rows without session, item or time, and those with a time outside."""
    errors: tuple[str, ...]
    """Location and error of the first unreadable rows."""
    outside: pa.Table
    """The rows with a time outside `time.between`."""
    outside_values: pa.Array
    """The event times of these as the source has them."""
    clock_rows: dict[str, pa.Array] = field(default_factory=dict)
    """Numbers of the rows with times that are ambiguous, or nonexistent, on the zone's clock."""


def source_columns(dataset: DatasetConfig) -> dict[str, pa.DataType]:
    """Return the columns of the source to read, with the type they become."""
    schema = dataset.event_schema()
    sources = dataset.event_columns().items()
    columns = {column: schema.field(name).type for name, names in sources for column in names}
    columns |= {dataset.time.offset: pa.int64()} if dataset.time.offset else {}
    return columns | {name: pa.string() for name in dataset.source.where if name not in columns}


def to_events(
    raw: RawBatch, dataset: DatasetConfig, first_row: int, clock: ZoneClock | None = None
) -> EventBatch:
    """Convert rows to events; drop and count rows without session, item or plausible time.

    `first_row` is the number of the batch's first row in the source file, from 0. `clock` is that
    of the file, for times without UTC offset, and has seen the batches before; None: a new one,
    which does not go by the order of rows.

    Raises:
        SourceError: a value is unreadable and no row may be dropped; names its line.
        OutOfOrderError: see `ZoneClock`.
    """
    schema, time = dataset.event_schema(), dataset.time
    unreadable = _UnreadableRows(raw, is_strict=dataset.quality.unreadable == 0)
    columns = {ROW: pa.array(first_row + raw.indices())}
    for name, sources in dataset.event_columns().items():
        if name in dataset.columns.key_names:
            columns[name] = _key(unreadable, dataset.columns.key(name))
            continue
        conversion = _conversion(schema.field(name), dataset)
        parts = [_convert_column(unreadable, source, conversion) for source in sources]
        columns[name] = parts[0] if len(parts) == 1 else _joined_texts(parts)
    local = _localised(columns, clock or ZoneClock(time.zone))
    if time.offset is not None:
        columns[EVENT_TIME] = _add_offsets(columns[EVENT_TIME], unreadable, time)
    readable = pa.table(columns, schema).filter(pa.array(~unreadable.mask))
    known, forgotten = _drop_forgotten(readable, dataset)
    complete, incomplete = _drop_incomplete(known)
    table, outside = _split_outside(complete, time)
    left_out = {reason: len(rows) for reason, rows in raw.left_out.items()}
    n_unreadable = left_out.pop(UNREADABLE, 0) + int(unreadable.mask.sum())
    dropped = {UNREADABLE: n_unreadable, **left_out, **forgotten, **incomplete}
    dropped |= {"outside time.between": outside.num_rows}
    found = {}
    if local is not None and time.zone != "UTC":
        found = {"ambiguous": local.ambiguous, "nonexistent": local.nonexistent}
    return EventBatch(
        table,
        {reason: n for reason, n in dropped.items() if n},
        readable,
        (*raw.errors, *unreadable.errors)[:EXAMPLES],
        outside,
        _values_of(outside, raw.table, columns[ROW], time.column),
        {check: columns[ROW].filter(pa.array(mask)) for check, mask in found.items()},
    )


def _localised(columns: dict[str, Any], clock: ZoneClock) -> Localised | None:
    """Replace times by instants; return those of the events, which `clock` follows, if any."""
    local = None
    for name, times in columns.items():
        if isinstance(times, Times):
            found = (clock if name == EVENT_TIME else ZoneClock(clock.zone)).localise(times)
            columns[name] = found.instants
            local = found if name == EVENT_TIME else local
    return local


def _values_of(outside: pa.Table, raw: pa.Table, rows: pa.Array, column: str) -> pa.Array:
    """Return the times of some rows as the source has them."""
    if not len(outside):
        return pa.nulls(0)
    return raw[column].combine_chunks().filter(pc.is_in(rows, value_set=outside[ROW]))


class _UnreadableRows:
    """Rows of a batch with an unreadable value, collected column by column."""

    def __init__(self, raw: RawBatch, *, is_strict: bool) -> None:
        self.raw = raw
        self.is_strict = is_strict
        self.mask = np.zeros(raw.table.num_rows, bool)
        self.errors: list[str] = []

    def add(self, mask: npt.NDArray[np.bool_], column: str, describe: Callable[[int], str]) -> None:
        """Add rows; if `is_strict`, the first one raises SourceError."""
        new = np.flatnonzero(mask & ~self.mask)
        for index in map(int, new[: EXAMPLES - len(self.errors)]):
            self.errors.append(f"{self.raw.location(index)}: column {column}: {describe(index)}")
        if self.is_strict and self.errors:
            raise SourceError(f"{self.errors[0]}. {LENIENT}")
        self.mask |= mask


@dataclass(frozen=True)
class _Conversion:
    """How a column becomes what the event table holds."""

    convert: Callable[[pa.Array], Any]
    """Returns an array, or `Times`; raises an ArrowException if a value is invalid."""
    expected: str
    """What it expects, for messages."""
    advise: Callable[[Any], str] = lambda _: ""
    """Says what to set, for an invalid value."""


def _conversion(field: pa.Field, dataset: DatasetConfig) -> _Conversion:
    source, time = dataset.source, dataset.time
    if field.type == TIMESTAMP:
        form = "days of Excel" if time.unit == "excel" else "Unix time"
        form = "text such as 2019-10-01 00:00:00" if time.unit == "text" else form
        form = f"text such as {' or '.join(time.formats)}" if time.formats else form
        expected = f"{form} (time.unit is {time.unit})"
        convert = to_times if field.name in _OF_EVENTS else to_limits
        return _Conversion(partial(convert, time=time), expected, partial(advice, time=time))
    if pa.types.is_int64(field.type):
        return _INTEGER
    if pa.types.is_floating(field.type):
        expected = f"a number such as 1{source.thousands or ''}234{source.decimal}5"
        return _Conversion(partial(_to_float, source=source), expected, _sign_advice)
    if pa.types.is_list(field.type):
        return _VECTOR
    return _TEXT


def _key(unreadable: _UnreadableRows, parts: Sequence[ColumnConfig]) -> pa.Array:
    """Convert the id of a session or user, which may be made of several columns, to text."""
    found = [
        _convert_column(unreadable, part.column, _INTEGER if part.type == "int" else _TEXT)
        for part in parts
    ]
    return joined([part.cast(pa.string()) for part in found])


def _joined_texts(parts: Sequence[pa.Array]) -> pa.Array:
    """Join texts by blanks, those that are null left out; null where nothing is left."""
    # Not `skip`: with it Arrow 25 leaves out rows without any text.
    text = pc.binary_join_element_wise(*parts, " ", null_handling="replace")
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.equal(text, ""), None, text)


def _convert_column(unreadable: _UnreadableRows, column: str, conversion: _Conversion) -> Any:  # noqa: ANN401
    """Convert a column; unreadable values become null."""
    values, convert = unreadable.raw.table[column].combine_chunks(), conversion.convert
    try:
        # All at once first, which is fast; the search for invalid values is the exception.
        return convert(values)
    except InvalidValuesError as error:
        bad = error.mask
    except pa.ArrowException:
        bad = _invalid_values(values, convert)

    def describe(row: int) -> str:
        found = f"expected {conversion.expected}, found {_shown(values[row])}"
        return found + conversion.advise(values[row])

    unreadable.add(bad, column, describe)
    if values.null_count + bad.sum() == len(values):  # the type may have no conversion at all
        return convert(pa.nulls(len(values), pa.string()))
    return convert(pc.if_else(pa.array(bad), pa.scalar(None, values.type), values))


def _shown(value: pa.Scalar) -> str:
    try:
        return f"{value.as_py()!r}"[:300]
    except (OverflowError, ValueError):  # a time that Python cannot represent
        return f"a {value.type} out of range"


def _invalid_values(values: pa.Array, convert: Callable[[pa.Array], Any]) -> npt.NDArray[np.bool_]:
    """Mark the values that `convert` cannot convert; each distinct value is tried once."""
    if pa.types.is_nested(values.type):
        return np.asarray(values.is_valid())
    try:
        distinct = values.unique()
    except pa.ArrowNotImplementedError:  # rare types have no `unique`
        return np.asarray(values.is_valid())
    bad = distinct.take(pa.array(list(find_invalid(distinct, convert)), pa.int64())).drop_null()
    return np.asarray(pc.is_in(values, value_set=bad))


def _to_text(values: pa.Array) -> pa.Array:
    """Convert to strings; whole floats lose their fraction (549.0 is session 549)."""
    return (to_int(values) if pa.types.is_floating(values.type) else values).cast(pa.string())


def _to_int_id(values: pa.Array) -> pa.Array:
    """Convert to int64 as `to_int` does, and text with blanks or a fraction of zeros too."""
    try:
        return to_int(values)
    except pa.ArrowException:
        return to_int(plain_numbers(decoded(values)))


_INTEGER, _TEXT = _Conversion(_to_int_id, _WHOLE_NUMBER), _Conversion(_to_text, "text in UTF-8")
_VECTOR = _Conversion(to_vectors, "a list of finite numbers such as [0.25, -1]")


def _to_float(values: pa.Array, source: SourceConfig) -> pa.Array:
    """Convert to float64; NaN, infinity and what becomes infinite as a float32 become null."""
    values = decoded(values)
    if pa.types.is_string(values.type):
        values = _with_point(values, source.decimal, source.thousands)
    values = cast_trimmed(values, pa.float64())
    return pc.if_else(pc.less_equal(pc.abs(values), _LARGEST), values, None)


def _sign_advice(value: pa.Scalar) -> str:
    """Return the signs to set for a number such as 1.234,5 or 1,234.5, or nothing."""
    text = text_of(value)
    for thousands, decimal in (".,", ",."):
        if re.fullmatch(rf"[+-]?\d{{1,3}}(\{thousands}\d{{3}})+\{decimal}\d+", text):
            return f"; set source.decimal: '{decimal}' and source.thousands: '{thousands}'"
        if re.fullmatch(rf"[+-]?\d{{1,3}}\{decimal}\d{{3}}", text):
            return f"; set source.decimal: '{decimal}', or source.thousands: '{decimal}'"
        if re.fullmatch(rf"[+-]?\d+\{decimal}\d+", text):
            return f"; set source.decimal: '{decimal}'"
    return ""


def _with_point(text: pa.Array, decimal: str, thousands: str | None) -> pa.Array:
    """Write numbers with a decimal point and without groups."""
    if thousands is not None:
        grouped = rf"^[+-]?\d{{1,3}}(\x{{{ord(thousands):x}}}\d{{3}})+({re.escape(decimal)}\d*)?$"
        has_groups = pc.match_substring(text, thousands)
        if pc.any(pc.and_not(has_groups, pc.match_substring_regex(text, grouped))).as_py():
            raise pa.ArrowInvalid("not in groups of three digits")
        text = pc.replace_substring(text, thousands, "")
    if decimal != ".":
        if pc.any(pc.match_substring(text, ".")).as_py():
            raise pa.ArrowInvalid("a point is not the decimal sign")
        text = pc.replace_substring(text, decimal, ".")
    return text


def _add_offsets(dates: pa.Array, unreadable: _UnreadableRows, time: TimeConfig) -> pa.Array:
    factor, column = MICROSECONDS[time.offset_unit], str(time.offset)

    def to_offsets(values: pa.Array) -> pa.Array:
        # Limits to within which no sum can overflow.
        return pc.multiply(clipped(to_int(values), -LATEST // factor, LATEST // factor), factor)

    expected = f"a whole number of {time.offset_unit} since the date began"
    offsets = _convert_column(unreadable, column, _Conversion(to_offsets, expected))
    return pc.add(dates.cast(pa.int64()), offsets).cast(TIMESTAMP)


def _drop_forgotten(table: pa.Table, dataset: DatasetConfig) -> tuple[pa.Table, dict[str, int]]:
    if not dataset.forgotten.users:
        return table, {}
    is_listed = dataset.forgotten.is_listed(table[USER_ID])
    n_listed = pc.sum(is_listed).as_py() or 0
    return table.filter(pc.invert(is_listed)), {"forgotten": n_listed} if n_listed else {}


def _drop_incomplete(table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    dropped = {}
    for name in (SESSION_ID, ITEM_ID, EVENT_TIME, SESSION_START):
        if name in table.schema.names and (n_nulls := table[name].null_count):
            table = table.filter(pc.is_valid(table[name]))
            dropped[f"no {name}"] = n_nulls
    return table, dropped


def _split_outside(table: pa.Table, time: TimeConfig) -> tuple[pa.Table, pa.Table]:
    """Split off the rows with a time outside `time.between`."""
    times = [name for name in (EVENT_TIME, SESSION_START) if name in table.schema.names]
    found = [_is_inside(table[name], time) for name in times]
    if not found or pc.all(reduce(pc.and_, found)).as_py():
        return table, table.slice(0, 0)
    inside = reduce(pc.and_, found)
    return table.filter(inside), table.filter(pc.invert(inside))


def _is_inside(times: pa.Array, time: TimeConfig) -> pa.Array:
    first, end = (pa.scalar(limit, pa.int64()).cast(TIMESTAMP) for limit in time.limits)
    return pc.and_(pc.greater_equal(times, first), pc.less(times, end))
