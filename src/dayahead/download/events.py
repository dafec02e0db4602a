"""Rows of a source into the event table: the columns, types and times of data/raw."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

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
from dayahead.dataset.schema import DatasetConfig, TimeConfig
from dayahead.download.rows import EXAMPLES, Records, refused

MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_LATEST = 7_258_118_400_000_000
"""The year 2200 in Unix microseconds: later times, and those before 1970, are misread units."""
_EXACT = 2**53
"""Whole numbers from here on have lost digits on their way through a float."""


@dataclass(frozen=True)
class EventBatch:
    """The events of some consecutive rows."""

    table: pa.Table
    n_rows: int
    dropped: dict[str, int]
    """Rows that are no events, by reason: not readable, or the column without a value."""
    readable: pa.Table
    """Like `table`, with the rows that lack a session, item or time."""
    faults: tuple[str, ...]
    """Of the first rows that are not readable: where they stand and why."""


def event_schema(dataset: DatasetConfig) -> pa.Schema:
    """Columns of data/raw/events-*.parquet for a data set, in their order."""
    ids = [(SESSION_ID, dataset.columns.session_id), (USER_ID, dataset.columns.user_id)]
    fields = [(name, pa.string()) for name, column in ids if column is not None]
    fields += [(ITEM_ID, _id_type(dataset.columns.item_id.type)), (EVENT_TIME, TIMESTAMP)]
    fields += [(ROW, pa.int64())]
    if dataset.columns.session_start is not None:
        fields += [(SESSION_START, TIMESTAMP)]
    for name, feature in dataset.features.items():
        if feature.column is not None:
            is_categorical = feature.kind == "categorical"
            fields += [(name, _id_type(feature.type) if is_categorical else pa.float64())]
    return pa.schema(fields)


def source_columns(dataset: DatasetConfig) -> dict[str, pa.DataType]:
    """Columns of the source that the event table is made of, with the type they become."""
    schema = event_schema(dataset)
    columns = {column: schema.field(name).type for name, column in dataset.event_columns().items()}
    return columns | ({dataset.time.offset: pa.int64()} if dataset.time.offset else {})


def to_events(records: Records, dataset: DatasetConfig, first_row: int) -> EventBatch:
    """Convert rows to events; rows without session, item or time are dropped and counted.

    Args:
        records: Rows of one raw file.
        dataset: What its columns mean, and whether rows may be left out that cannot be read.
        first_row: Number of the first of them in its source file, from 0.

    Raises:
        SourceError: a value that is not what the data set's file says, with its line, where no
            row may be left out.
    """
    schema = event_schema(dataset)
    faults = _Faults(records, is_strict=dataset.quality.unreadable == 0)
    columns = {ROW: pa.array(first_row + records.positions())}
    for name, column in dataset.event_columns().items():
        columns[name] = _converted(faults, column, *_conversion(schema.field(name), dataset.time))
    if dataset.time.offset is not None:
        columns[EVENT_TIME] = _moved(columns[EVENT_TIME], faults, dataset.time)
    readable = pa.table(columns, schema).filter(pa.array(~faults.rows))
    table, dropped = _complete_events(readable, dataset)
    if n_unreadable := records.n_rows - readable.num_rows:
        dropped = {"unreadable": n_unreadable, **dropped}
    told = (*records.faults, *faults.told)[:EXAMPLES]
    return EventBatch(table, records.n_rows, dropped, readable, told)


class _Faults:
    """Which rows hold a value that cannot be read."""

    def __init__(self, records: Records, *, is_strict: bool) -> None:
        self.records = records
        self.is_strict = is_strict
        self.rows = np.zeros(records.table.num_rows, bool)
        self.told: list[str] = []

    def add(self, rows: npt.NDArray[np.bool_], tell: Callable[[int], str]) -> None:
        """Note rows; the first one is an error if the data set's file allows none."""
        new = np.flatnonzero(rows & ~self.rows)
        self.told += [tell(int(index)) for index in new[: EXAMPLES - len(self.told)]]
        if self.is_strict and self.told:
            raise SourceError(self.told[0])
        self.rows |= rows


def _id_type(kind: str) -> pa.DataType:
    return pa.int64() if kind == "int" else pa.string()


Convert = Callable[[pa.Array], pa.Array]


def _conversion(field: pa.Field, time: TimeConfig) -> tuple[Convert, str]:
    """How a column is converted, and the words for what it expects."""
    if field.type == TIMESTAMP:
        expected = "text such as 2019-10-01 00:00:00" if time.unit == "text" else "Unix time"
        return (
            lambda values: _times(values, time),
            f"{expected} between 1970 and 2200 (time.unit is {time.unit})",
        )
    if pa.types.is_int64(field.type):
        return _whole, "a whole number of at most 64 bits (or set its type to string)"
    if pa.types.is_floating(field.type):
        return _real, "a number"
    return _text, "text in UTF-8"


def _converted(faults: _Faults, column: str, convert: Convert, expected: str) -> pa.Array:
    values = faults.records.table[column].combine_chunks()

    def tell(index: int) -> str:
        found = _shown(values[index])
        return f"{faults.records.place(index)}: column {column}: expected {expected}, found {found}"

    try:
        return convert(values)
    except pa.ArrowException:
        bad = _refused_values(values, convert)
    faults.add(bad, tell)
    if values.null_count + bad.sum() == len(values):  # of a type that cannot be converted, maybe
        return convert(pa.nulls(len(values), pa.string()))
    return convert(pc.if_else(pa.array(bad), pa.scalar(None, values.type), values))


def _shown(value: pa.Scalar) -> str:
    try:
        return f"{value.as_py()!r}"[:300]
    except (OverflowError, ValueError):  # a time beyond those of Python
        return f"a {value.type} out of range"


def _refused_values(values: pa.Array, convert: Convert) -> npt.NDArray[np.bool_]:
    """Find the values that `convert` refuses by trying each different one."""
    if pa.types.is_nested(values.type):
        return np.asarray(values.is_valid())
    different = values.unique()
    bad = different.take(pa.array(list(refused(different, convert)), pa.int64())).drop_null()
    return np.asarray(pc.is_in(values, value_set=bad))


def _text(values: pa.Array) -> pa.Array:
    """As strings; floats that stand for whole numbers as these (549.0 is session 549)."""
    if pa.types.is_floating(values.type):
        values = _whole(values)
    return values.cast(pa.string())


def _whole(values: pa.Array) -> pa.Array:
    """As int64, exactly."""
    if pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    if pa.types.is_string(values.type) and pc.any(pc.match_substring_regex(values, "[xX]")).as_py():
        raise pa.ArrowInvalid("Arrow would read 0xFFFFFFFFFFFFFFFF as -1")
    if pa.types.is_floating(values.type) and pc.any(pc.greater(pc.abs(values), _EXACT)).as_py():
        raise pa.ArrowInvalid("digits were lost in a float")
    return values.cast(pa.int64())


def _real(values: pa.Array) -> pa.Array:
    """As float64; what is not finite becomes null."""
    if pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    values = values.cast(pa.float64())
    return pc.if_else(pc.is_finite(values), values, None)


def _times(values: pa.Array, time: TimeConfig) -> pa.Array:
    """As timestamps in UTC, from text, Unix time, or a type of time."""
    if pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    if pa.types.is_temporal(values.type):
        zone = getattr(values.type, "tz", None)
        is_finer = getattr(values.type, "unit", None) == "ns"  # then digits are cut off
        values = values.cast(pa.timestamp("us", zone), safe=not is_finer)
        instants = values.cast(TIMESTAMP) if zone else _on_clock(values, time.zone)
    elif time.unit == "text":
        instants = _from_text(values.cast(pa.string()), time.zone)
    else:
        instants = _from_unix(values, MICROSECONDS[time.unit])
    return _plausible(instants)


def _plausible(instants: pa.Array) -> pa.Array:
    if pc.any(_implausible(instants.cast(pa.int64()))).as_py():
        raise pa.ArrowInvalid("outside 1970 to 2200")
    return instants


def _implausible(unix: pa.Array) -> pa.Array:
    return pc.or_(pc.less(unix, 0), pc.greater_equal(unix, _LATEST))


def _from_unix(values: pa.Array, factor: int) -> pa.Array:
    try:
        unix = pc.multiply_checked(_whole(values), factor)
    except pa.ArrowInvalid:  # seconds with a fraction: a double holds microseconds until 2200
        unix = pc.round(pc.multiply(values.cast(pa.float64()), float(factor))).cast(pa.int64())
    return unix.cast(TIMESTAMP)


def _from_text(text: pa.Array, zone: str) -> pa.Array:
    """ISO 8601 (a blank for the T will do); UTC, Z or an offset at its end wins over `zone`."""
    if pc.all(pc.ends_with(text, " UTC")).as_py():
        text, zone = pc.utf8_slice_codeunits(text, 0, -4), "UTC"
    with suppress(pa.ArrowInvalid):  # all rows have an offset
        return text.cast(TIMESTAMP)
    with suppress(pa.ArrowInvalid):  # none has
        return _on_clock(_naive(text), zone)
    text = pc.replace_substring_regex(text, r"\s*(UTC|GMT)$", "Z")
    text = pc.replace_substring_regex(text, r"\s+([+-]\d\d:?\d\d)$", r"\1")
    has_zone = pc.match_substring_regex(text, r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    with_zone = pc.if_else(has_zone, text, None).cast(TIMESTAMP)
    without = _on_clock(_naive(pc.if_else(has_zone, None, text)), zone)
    return pc.coalesce(with_zone, without)


def _naive(text: pa.Array) -> pa.Array:
    return text.cast(pa.timestamp("us"))


def _on_clock(naive: pa.Array, zone: str) -> pa.Array:
    """Read wall-clock times; of an hour that comes twice the first is taken."""
    instants = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="earliest")
    return instants.cast(TIMESTAMP)


def _moved(dates: pa.Array, faults: _Faults, time: TimeConfig) -> pa.Array:
    factor = MICROSECONDS[time.offset_unit]

    def shifts(values: pa.Array) -> pa.Array:
        shifts = pc.multiply_checked(_whole(values), factor)
        _plausible(pc.abs(shifts))  # so that no sum can overflow
        return shifts

    expected = f"a whole number of {time.offset_unit} since the date began"
    offsets = _converted(faults, str(time.offset), shifts, expected)
    unix = pc.add(dates.cast(pa.int64()), offsets)
    if pc.any(_implausible(unix)).as_py():
        strange = np.asarray(pc.fill_null(_implausible(unix), fill_value=False))
        faults.add(
            strange,
            lambda index: (
                f"{faults.records.place(index)}: column {time.offset}: expected a time between "
                f"1970 and 2200, found one outside when added to column {time.column}"
            ),
        )
    return unix.cast(TIMESTAMP)


def _complete_events(table: pa.Table, dataset: DatasetConfig) -> tuple[pa.Table, dict[str, int]]:
    present = table.schema.names
    needed = [name for name in (SESSION_ID, ITEM_ID, EVENT_TIME, SESSION_START) if name in present]
    dropped = {}
    for name in needed:
        before = table.num_rows
        if table[name].null_count:
            table = table.filter(pc.is_valid(table[name]))
        if before > table.num_rows:
            dropped[f"no {name}"] = before - table.num_rows
    return table, dropped
