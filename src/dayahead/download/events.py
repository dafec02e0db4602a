"""Raw batches to the event table: the columns, types and times of data/raw."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    LATEST_TIME,
    ROW,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.errors import SourceError
from dayahead.dataset.columns import ColumnConfig
from dayahead.dataset.schema import DatasetConfig, TimeConfig
from dayahead.dataset.source import SourceConfig
from dayahead.download.batches import EXAMPLES, UNREADABLE, RawBatch, find_invalid
from dayahead.download.ids import joined, plain_numbers

MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EXACT = {32: 2**24, 64: 2**53}
"""Largest exact whole number by bits of a float: larger ones lose digits."""
_LARGEST = float(np.finfo(np.float32).max)
_NAIVE = pa.timestamp("us")
_WHOLE_NUMBER = "a whole number of at most 64 bits (or set its type to string)"
_Convert = Callable[[pa.Array], pa.Array]
"""Converts a column; raises an ArrowException if a value is invalid."""


@dataclass(frozen=True)
class EventBatch:
    """The events of a raw batch."""

    table: pa.Table
    dropped: dict[str, int]
    """Number of rows that are no events, by reason: unreadable, or the column without a value."""
    readable: pa.Table
    """`table` and the rows without session, item or time."""
    errors: tuple[str, ...]
    """Location and error of the first unreadable rows."""


def source_columns(dataset: DatasetConfig) -> dict[str, pa.DataType]:
    """Return the columns of the source to read, with the type they become."""
    schema = dataset.event_schema()
    sources = dataset.event_columns().items()
    columns = {column: schema.field(name).type for name, names in sources for column in names}
    return columns | ({dataset.time.offset: pa.int64()} if dataset.time.offset else {})


def to_events(raw: RawBatch, dataset: DatasetConfig, first_row: int) -> EventBatch:
    """Convert rows to events; drop and count rows without session, item or time.

    `first_row` is the number of the batch's first row in the source file, from 0.

    Raises:
        SourceError: a value is unreadable and no row may be dropped; names its line.
    """
    schema = dataset.event_schema()
    unreadable = _UnreadableRows(raw, is_strict=dataset.quality.unreadable == 0)
    columns = {ROW: pa.array(first_row + raw.indices())}
    for name, sources in dataset.event_columns().items():
        if name in dataset.columns.key_names:
            columns[name] = _key(unreadable, dataset.columns.key(name))
            continue
        convert, expected = _converter(schema.field(name), dataset)
        columns[name] = _convert_column(unreadable, sources[0], convert, expected)
    if dataset.time.offset is not None:
        columns[EVENT_TIME] = _add_offsets(columns[EVENT_TIME], unreadable, dataset.time)
    readable = pa.table(columns, schema).filter(pa.array(~unreadable.mask))
    known, forgotten = _drop_forgotten(readable, dataset)
    table, dropped = _drop_incomplete(known)
    left_out = {reason: len(rows) for reason, rows in raw.left_out.items()}
    if n_unreadable := left_out.pop(UNREADABLE, 0) + int(unreadable.mask.sum()):
        left_out = {UNREADABLE: n_unreadable, **left_out}
    dropped = {**left_out, **forgotten, **dropped}
    errors = (*raw.errors, *unreadable.errors)[:EXAMPLES]
    return EventBatch(table, dropped, readable, errors)


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
            raise SourceError(self.errors[0])
        self.mask |= mask


def _converter(field: pa.Field, dataset: DatasetConfig) -> tuple[_Convert, str]:
    """Return the conversion to a column's type, and what it expects, for messages."""
    source, time = dataset.source, dataset.time
    if field.type == TIMESTAMP:
        expected = "text such as 2019-10-01 00:00:00" if time.unit == "text" else "Unix time"
        return (
            lambda values: _to_times(values, time),
            f"{expected} between 1970 and 2200 (time.unit is {time.unit})",
        )
    if pa.types.is_int64(field.type):
        return _to_int_id, _WHOLE_NUMBER
    if pa.types.is_floating(field.type):
        expected = f"a number such as 1{source.thousands or ''}234{source.decimal}5"
        return lambda values: _to_float(values, source), expected
    return _to_text, "text in UTF-8"


def _key(unreadable: _UnreadableRows, parts: Sequence[ColumnConfig]) -> pa.Array:
    """Convert the id of a session or user, which may be made of several columns, to text."""
    found = []
    for part in parts:
        convert, expected = _to_text, "text in UTF-8"
        if part.type == "int":
            convert, expected = _to_int_id, _WHOLE_NUMBER
        found.append(_convert_column(unreadable, part.column, convert, expected).cast(pa.string()))
    return joined(found)


def _convert_column(
    unreadable: _UnreadableRows, column: str, convert: _Convert, expected: str
) -> pa.Array:
    """Convert a column; unreadable values become null."""
    values = unreadable.raw.table[column].combine_chunks()
    try:
        # All at once first, which is fast; the search for invalid values is the exception.
        return convert(values)
    except pa.ArrowException:
        bad = _invalid_values(values, convert)
    unreadable.add(bad, column, lambda row: f"expected {expected}, found {_shown(values[row])}")
    if values.null_count + bad.sum() == len(values):  # the type may have no conversion at all
        return convert(pa.nulls(len(values), pa.string()))
    return convert(pc.if_else(pa.array(bad), pa.scalar(None, values.type), values))


def _shown(value: pa.Scalar) -> str:
    try:
        return f"{value.as_py()!r}"[:300]
    except (OverflowError, ValueError):  # a time that Python cannot represent
        return f"a {value.type} out of range"


def _invalid_values(values: pa.Array, convert: _Convert) -> npt.NDArray[np.bool_]:
    """Mark the values that `convert` cannot convert; each distinct value is tried once."""
    if pa.types.is_nested(values.type):
        return np.asarray(values.is_valid())
    try:
        distinct = values.unique()
    except pa.ArrowNotImplementedError:  # rare types have no `unique`
        return np.asarray(values.is_valid())
    bad = distinct.take(pa.array(list(find_invalid(distinct, convert)), pa.int64())).drop_null()
    return np.asarray(pc.is_in(values, value_set=bad))


def _decoded(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()) if pa.types.is_binary(values.type) else values


def _to_text(values: pa.Array) -> pa.Array:
    """Convert to strings; whole floats lose their fraction (549.0 is session 549)."""
    return (_to_int(values) if pa.types.is_floating(values.type) else values).cast(pa.string())


def _to_int(values: pa.Array) -> pa.Array:
    """Convert to int64, exactly."""
    values = _decoded(values)
    if pa.types.is_string(values.type) and pc.any(pc.match_substring_regex(values, "[xX]")).as_py():
        raise pa.ArrowInvalid("Arrow would read 0xFFFFFFFFFFFFFFFF as -1")
    bits = values.type.bit_width if pa.types.is_floating(values.type) else 0
    if bits and pc.any(pc.greater(pc.abs(values), _EXACT[bits])).as_py():
        raise pa.ArrowInvalid("the float has lost digits")
    return _cast_trimmed(values, pa.int64())


def _cast_trimmed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert to numbers; blanks around those written as text are no part of them."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_string(values.type):
            raise
        return pc.ascii_trim_whitespace(values).cast(kind)


def _to_int_id(values: pa.Array) -> pa.Array:
    """Convert to int64 as `_to_int` does, and text with blanks or a fraction of zeros too."""
    try:
        return _to_int(values)
    except pa.ArrowException:
        return _to_int(plain_numbers(_decoded(values)))


def _to_float(values: pa.Array, source: SourceConfig) -> pa.Array:
    """Convert to float64; NaN, infinity and what becomes infinite as a float32 become null."""
    values = _decoded(values)
    if pa.types.is_string(values.type):
        values = _with_point(values, source.decimal, source.thousands)
    values = _cast_trimmed(values, pa.float64())
    return pc.if_else(pc.less_equal(pc.abs(values), _LARGEST), values, None)


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


def _to_times(values: pa.Array, time: TimeConfig) -> pa.Array:
    """Convert text, Unix time or a date or time type to timestamps in UTC."""
    values = _decoded(values)
    if pa.types.is_temporal(values.type):
        zone = getattr(values.type, "tz", None)
        is_finer = getattr(values.type, "unit", None) == "ns"  # truncate to microseconds
        values = values.cast(pa.timestamp("us", zone), safe=not is_finer)
        instants = values.cast(TIMESTAMP) if zone else _localized(values, time.zone)
    elif time.unit == "text":
        instants = _parse_times(values.cast(pa.string()), time.zone)
    else:
        factor = MICROSECONDS[time.unit]
        try:
            unix = pc.multiply_checked(_to_int(values), factor)
        except pa.ArrowInvalid:  # fractions; float64 is exact to the microsecond until 2200
            unix = pc.round(pc.multiply(values.cast(pa.float64()), float(factor))).cast(pa.int64())
        instants = unix.cast(TIMESTAMP)
    return _check_range(instants)


def _check_range(instants: pa.Array) -> pa.Array:
    if pc.any(_is_out_of_range(instants.cast(pa.int64()))).as_py():
        raise pa.ArrowInvalid("outside 1970 to 2200")
    return instants


def _is_out_of_range(unix: pa.Array) -> pa.Array:
    return pc.or_(pc.less(unix, 0), pc.greater_equal(unix, LATEST_TIME))


def _parse_times(text: pa.Array, zone: str) -> pa.Array:
    """Parse ISO 8601 (T or blank); a trailing UTC, Z or offset takes precedence over `zone`."""
    if pc.all(pc.ends_with(text, " UTC")).as_py():
        text, zone = pc.utf8_slice_codeunits(text, 0, -4), "UTC"
    with suppress(pa.ArrowInvalid):  # all rows have an offset
        return text.cast(TIMESTAMP)
    with suppress(pa.ArrowInvalid):  # none has
        return _localized(text.cast(_NAIVE), zone)
    # Some rows have an offset and others none: parse them separately.
    text = pc.replace_substring_regex(text, r"\s*(UTC|GMT)$", "Z")
    text = pc.replace_substring_regex(text, r"\s+([+-]\d\d:?\d\d)$", r"\1")
    has_offset = pc.match_substring_regex(text, r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    with_offset = pc.if_else(has_offset, text, None).cast(TIMESTAMP)
    without = _localized(pc.if_else(has_offset, None, text).cast(_NAIVE), zone)
    return pc.coalesce(with_offset, without)


def _localized(naive: pa.Array, zone: str) -> pa.Array:
    """Interpret wall-clock times in a zone; of an hour that occurs twice, take the first."""
    instants = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="earliest")
    return instants.cast(TIMESTAMP)


def _add_offsets(dates: pa.Array, unreadable: _UnreadableRows, time: TimeConfig) -> pa.Array:
    factor, column = MICROSECONDS[time.offset_unit], str(time.offset)

    def to_offsets(values: pa.Array) -> pa.Array:
        offsets = pc.multiply_checked(_to_int(values), factor)
        _check_range(pc.abs(offsets))  # so that no sum can overflow
        return offsets

    expected = f"a whole number of {time.offset_unit} since the date began"
    offsets = _convert_column(unreadable, column, to_offsets, expected)
    unix = pc.add(dates.cast(pa.int64()), offsets)
    unreadable.add(
        np.asarray(pc.fill_null(_is_out_of_range(unix), fill_value=False)),
        column,
        lambda _: (
            f"expected a time between 1970 and 2200, found one outside when added to column "
            f"{time.column}"
        ),
    )
    return unix.cast(TIMESTAMP)


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
