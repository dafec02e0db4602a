"""Raw values as they come in, checked strictly: what Python or Arrow would convert is refused.

A bool is no number, a number with a fraction no integer, and digits are those of ASCII.
"""

import math
import re
import reprlib
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from dayahead.core.errors import DataError

INTEGER = re.compile(r"-?[0-9]{1,20}")


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
    # By type, of which there are few.
    for each in {*map(type, values)}:
        if each is bool or not issubclass(each, (kind, type(None))):
            raise TypeError(f"found {each.__name__}")
    if kind is Real and not all(value is None or math.isfinite(value) for value in values):
        raise ValueError("found one that is not finite")


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
        return str(item).encode().decode()
    if isinstance(item, str) and not INTEGER.fullmatch(item):
        raise ValueError
    return int(pa.scalar(int(item), pa.int64()).as_py())
