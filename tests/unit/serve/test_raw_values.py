"""Ids and numbers are taken strictly: no value is converted that is no such value."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dayahead.core.errors import DataError
from dayahead.serve.raw_values import cast_column, item_id, typed_column

ODD_INTEGERS = [
    "1_0",
    "+5",
    " 5",
    "5 ",
    "\u0663",
    "\uff15",
    "0x1F",
    "1e3",
    "5.0",
    "",
    "-",
    "9" * 5_000,
]


@pytest.mark.parametrize(
    "item", [*ODD_INTEGERS, True, 5.0, 2**63, None, [5]], ids=lambda x: repr(x)[:9]
)
def test_odd_ids_are_no_integers(item):
    with pytest.raises(DataError, match="expected a 64-bit integer") as error:
        item_id(item, is_text=False)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("item", ["12", 12, np.int64(12), "012"])
def test_integers_are(item):
    assert item_id(item, is_text=False) == 12
    assert item_id("-3", is_text=False) == -3


@pytest.mark.parametrize("item", [*ODD_INTEGERS, 5])
def test_any_text_is_an_id_of_a_data_set_of_texts(item):
    assert item_id(item, is_text=True) == str(item)


@pytest.mark.parametrize("item", [True, 5.0, "\ud800"])
def test_what_is_no_text_is_not(item):
    with pytest.raises(DataError, match="expected Unicode text"):
        item_id(item, is_text=True)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        *((value, pa.int64()) for value in (True, 1.0, 1.5, "5", math.nan, 2**63)),
        *((value, pa.float64()) for value in (True, "5", math.nan, math.inf, -math.inf)),
        *((value, pa.string()) for value in (True, 5, 1.5, "\ud800")),
        (True, pa.timestamp("us", tz="UTC")),
    ],
)
def test_values_of_another_type_are_refused(value, type_):
    with pytest.raises(DataError, match="price: expected values of type"):
        typed_column("price", [None, value], type_)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, np.int64(3)], pa.int64()),
        ([1, None, 0.5, np.float32(0.5)], pa.float64()),
        (["a", None], pa.string()),
    ],
)
def test_values_of_the_type_are_kept_and_so_are_nulls(values, type_):
    assert typed_column("price", values, type_).to_pylist() == values


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        *(([None, text], pa.int64()) for text in (*ODD_INTEGERS, "5\n")),
        *(([True], type_) for type_ in (pa.int64(), pa.float64(), pa.string())),
    ],
)
def test_a_column_of_another_type_is_refused(values, type_):
    with pytest.raises((DataError, pa.ArrowInvalid)):
        cast_column("item_id", pa.chunked_array([values]), type_)


@pytest.mark.parametrize("values", [["12", "-3", None], [12.0, -3.0, None], [12, -3, None]])
def test_a_column_of_whole_numbers_is_cast(values):
    column = pa.chunked_array([values])
    encoded = column.dictionary_encode()
    for each in (column, encoded, column.cast(pa.decimal128(20)) if values[0] == 12 else column):
        assert cast_column("item_id", each, pa.int64()).to_pylist() == [12, -3, None]
