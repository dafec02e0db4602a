"""Vectors of items: lists, or text such as `[0.25, -1]` or `{0.25,-1}`, to lists of float32."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.download.nested import is_list
from dayahead.download.values import InvalidValuesError, decoded

_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_NUMBERS = rf"\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*"
_LIST = rf"^\s*(?:\[{_NUMBERS}\]|\{{{_NUMBERS}\}})\s*$"


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
