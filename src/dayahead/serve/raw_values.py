"""Strict checks of raw values: what Python or Arrow would silently convert is refused.

A bool is no number, a number with a fraction no integer, and digits are those of ASCII.
"""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dayahead.core.errors import DataError

INTEGER = re.compile(r"-?[0-9]{1,20}")
WHOLE = f"^{INTEGER.pattern}$"
_WITHOUT_ZONE = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?$"


def typed_column(name: str, values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return a column's values in a type; a null stays one.

    Raises:
        DataError: a value is not of that type.
    """
    kind = Integral if pa.types.is_integer(type_) else Real if pa.types.is_floating(type_) else None
    try:
        if kind is not None:
            _check_numbers(values, kind)
        return pa.array(values, type_)
    except (pa.ArrowException, OverflowError, TypeError, ValueError, UnicodeError) as error:
        raise DataError(f"{name}: expected values of type {type_}: {error}") from None


def _check_numbers(values: Sequence[Any], kind: type) -> None:
    # One check per type, of which there are few, instead of one per value.
    for each in {*map(type, values)}:
        if each is bool or not issubclass(each, (kind, type(None))):
            raise TypeError(f"found {each.__name__}")
    if kind is Real and not all(value is None or math.isfinite(value) for value in values):
        raise ValueError("found one that is not finite")


def cast_column(name: str, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a file's column in a type; whole numbers may be text or, as pandas has them, floats.

    Raises:
        DataError: the column, or text in it, is of another type.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    found = column.type
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found)
    if pa.types.is_integer(type_):
        kinds = ("integer", "floating", "decimal", "null")
        if not (is_text or any(getattr(pa.types, f"is_{kind}")(found) for kind in kinds)):
            raise DataError(f"{name} is {found}; expected {type_}")
        # Arrow would also read "0x1F".
        if is_text and pc.any(pc.invert(pc.match_substring_regex(column, WHOLE))).as_py():
            raise DataError(f"{name}: expected digits in each text, such as 12")
    elif pa.types.is_boolean(found):
        raise DataError(f"{name} is bool; expected {type_}")
    return column.cast(type_)


def csv_options(types: Mapping[str, pa.DataType]) -> pa.csv.ConvertOptions:
    """Return how to read columns of a CSV before `cast_csv_column`: numbers and times as text."""
    columns = {name: pa.string() if _is_cast(type_) else type_ for name, type_ in types.items()}
    return pa.csv.ConvertOptions(column_types=columns)


def _is_cast(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_))


def cast_csv_column(name: str, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a CSV's column in a type; a whole number or time that is missing is a null.

    A time without a zone is in UTC, as elsewhere.

    Raises:
        DataError: text in it is of another type.
    """
    if _is_cast(type_):
        is_null = pc.is_in(column, pa.array(pa.csv.ConvertOptions().null_values))
        column = pc.if_else(is_null, None, column)
    if not pa.types.is_timestamp(type_):
        return cast_column(name, column, type_)
    try:
        return pc.replace_substring_regex(column, _WITHOUT_ZONE, r"\0Z").cast(type_)
    except pa.ArrowInvalid as error:
        found, _, _ = str(error).partition(" as a scalar")  # then what programmers may do
        raise DataError(
            f"{name}: {found}; expected times such as 2026-01-02T10:00:00Z, or "
            f"2026-01-02 10:00:00 in UTC, to the microsecond at most"
        ) from None


def item_id(item: int | str, *, is_text: bool) -> int | str:
    """Return an item id in the data set's type.

    Raises:
        DataError: it cannot be one.
    """
    try:
        return _parsed(item, is_text=is_text)
    except (TypeError, ValueError, OverflowError):
        kind = "Unicode text" if is_text else "a 64-bit integer"
        example = "shoe-12" if is_text else "12"
        raise DataError(
            f"item id {reprlib.repr(item)}: expected {kind}, as in the data set, for example "
            f"{example}"
        ) from None


def _parsed(item: int | str, *, is_text: bool) -> int | str:
    if isinstance(item, bool) or not isinstance(item, (str, Integral)):
        raise TypeError
    if is_text:
        # Encoding fails for lone surrogates, which Arrow cannot store.
        return str(item).encode().decode()
    if isinstance(item, str) and not INTEGER.fullmatch(item):
        raise ValueError
    # Arrow raises OverflowError beyond 64 bits.
    return int(pa.scalar(int(item), pa.int64()).as_py())


def read_events_csv(path: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read the events of a session from a CSV with columns of these types.

    Raises:
        DataError: the file is missing, lacks a column or holds a value of another type.
    """
    options = csv_options(types)
    options.include_columns = list(types)
    try:
        read = pa.csv.read_csv(path, convert_options=options)
        columns = {name: cast_csv_column(name, read[name], types[name]) for name in types}
        return pa.table(columns)
    except (OSError, pa.ArrowException, KeyError, DataError) as error:
        raise DataError(
            f"{path}: expected a CSV with the columns {', '.join(types)}: {error}"
        ) from None
