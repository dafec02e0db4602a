"""Conversions of values: bytes to text, exact whole numbers, lists of numbers."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.download.nested import is_list

EXACT = {32: 2**24, 64: 2**53}
"""Largest exact whole number by bits of a float: larger ones lose digits."""
_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_NUMBERS = rf"\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*"
_LIST = rf"^\s*(?:\[{_NUMBERS}\]|\{{{_NUMBERS}\}})\s*$"


class InvalidValuesError(pa.ArrowInvalid):  # type: ignore[misc]
    """Some values of an array cannot be converted."""

    def __init__(self, message: str, mask: npt.NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.mask = mask
        """Marks them."""


def decoded(values: pa.Array) -> pa.Array:
    """Decode bytes (UTF-8); others stay."""
    return values.cast(pa.string()) if pa.types.is_binary(values.type) else values


def to_int(values: pa.Array) -> pa.Array:
    """Convert to int64, exactly.

    Raises:
        pa.ArrowInvalid: a value is no whole number of 64 bits.
    """
    values = decoded(values)
    if pa.types.is_string(values.type) and pc.any(pc.match_substring_regex(values, "[xX]")).as_py():
        raise pa.ArrowInvalid("Arrow would read 0xFFFFFFFFFFFFFFFF as -1")
    bits = values.type.bit_width if pa.types.is_floating(values.type) else 0
    if bits and pc.any(pc.greater(pc.abs(values), EXACT[bits])).as_py():
        raise pa.ArrowInvalid("the float has lost digits")
    return cast_trimmed(values, pa.int64())


def cast_trimmed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert to numbers; blanks around those written as text are no part of them.

    Raises:
        pa.ArrowInvalid: a value is no number of this kind.
    """
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_string(values.type):
            raise
        return pc.ascii_trim_whitespace(values).cast(kind)


def to_vectors(values: pa.Array) -> pa.Array:
    """Convert to list<float32>; an empty list is none, so it becomes null.

    Raises:
        InvalidValuesError: some values are no lists of finite numbers.
        pa.ArrowInvalid: the type has no lists of numbers.
    """
    values = decoded(values)
    if pa.types.is_string(values.type):
        values = _parsed(values)
    if not is_list(values.type) or pa.types.is_null(values.type):
        raise pa.ArrowInvalid("no lists")
    if not _is_number(values.type.value_type):
        raise pa.ArrowInvalid("no lists of numbers")
    lists = values.cast(pa.list_(pa.float32()), safe=False)
    lengths = pc.list_value_length(lists)
    numbers = np.abs(lists.flatten().to_numpy(zero_copy_only=False))  # NaN where null
    of_number = np.repeat(np.arange(len(lists)), lengths.fill_null(0))
    bad = np.zeros(len(lists), bool)
    bad[of_number[~(numbers < np.inf)]] = True
    if bad.any():
        raise InvalidValuesError("not a list of finite numbers", bad)
    return pc.if_else(pc.equal(lengths, 0), None, lists)


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _parsed(text: pa.Array) -> pa.Array:
    is_read = pc.fill_null(pc.match_substring_regex(text, _LIST), fill_value=True)
    if not pc.all(is_read, min_count=0).as_py():
        raise InvalidValuesError("not a list of numbers", ~np.asarray(is_read))
    digits = pc.replace_substring_regex(text, r"[\s\[\]{}]", "")
    numbers = pc.split_pattern(pc.if_else(pc.equal(digits, ""), None, digits), ",")
    return numbers.cast(pa.list_(pa.float64()))
