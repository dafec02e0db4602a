"""Ids as text: whole numbers in one spelling, and several columns as one id."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import ITEM_ID
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.values import EXACT

SEPARATOR = ":"
"""Between the values of an id of several columns."""
_FRACTION = r"^-?\d+\.0*$"
_BLANKS = " \t\r\n"
_NUMBER = r"^(-?)0*(\d+)(\.0*)?$"


def plain_numbers(values: pa.Array) -> pa.Array:
    """Trim text, and remove fractions of zeros: ` 17` and `17.0` become `17`.

    Raises:
        ArrowInvalid: a number with a fraction is so large that the float it was has lost digits.
    """
    if not pa.types.is_string(values.type):
        return values
    values = pc.utf8_trim(values, _BLANKS)
    is_float = pc.fill_null(pc.match_substring_regex(values, _FRACTION), fill_value=False)
    whole = pc.replace_substring_regex(values, r"\.0*$", "")
    # A number that is written with a fraction was a float.
    floats = whole.filter(is_float).cast(pa.int64())
    if pc.any(pc.greater(pc.abs(floats), EXACT[64])).as_py():
        raise pa.ArrowInvalid("the float has lost digits")
    return pc.if_else(is_float, whole, values)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Join the values of several columns to one id; null where one of them is."""
    if len(parts) == 1:
        return parts[0]
    escaped = [pc.replace_substring_regex(part, r"([\\:])", r"\\\1") for part in parts]
    return pc.binary_join_element_wise(*escaped, SEPARATOR)


def spelled_columns(dataset: DatasetConfig) -> list[str]:
    """Return the id columns whose values keep the spelling of the source."""
    keys = [name for name in dataset.columns.key_names if len(dataset.columns.key(name)) == 1]
    as_text = [name for name in keys if dataset.columns.key(name)[0].type == "string"]
    return as_text + ([ITEM_ID] if dataset.columns.item_id.type == "string" else [])


def canonical(texts: pa.Array) -> pa.Array:
    """Return ids without blanks around them, and numbers without leading zeros and fractions."""
    return pc.replace_substring_regex(pc.utf8_trim(texts, _BLANKS), _NUMBER, r"\1\2")


def odd_spellings(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values that `canonical` changes; nulls are left out."""
    # Few ids pass these tests, which are fast; the first two look at one character.
    for tests in (
        [(pc.ends_with, "0"), (pc.ends_with, " ")],
        [(pc.match_substring, ".0"), (pc.ends_with, " ")],
    ):
        may_be = pc.starts_with(texts, "0")
        for test, sign in [(pc.starts_with, "-"), (pc.starts_with, " "), *tests]:
            may_be = pc.or_(may_be, test(texts, sign))
        texts = texts.filter(pc.fill_null(may_be, fill_value=False))
    return texts.filter(pc.not_equal(texts, canonical(texts)))


def spelling_cure(column: str, dataset: DatasetConfig) -> str:
    """Return the setting that reads a column's ids as numbers, as text for messages."""
    (source,) = dataset.columns.sources()[column]
    return f"columns.{column}: {{column: {source}, type: int}}"
