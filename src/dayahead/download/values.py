"""Conversions that several columns share: bytes to text, and exact whole numbers."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

EXACT = {32: 2**24, 64: 2**53}
"""Largest exact whole number by bits of a float: larger ones lose digits."""


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
