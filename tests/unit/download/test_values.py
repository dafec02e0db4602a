"""Vectors of items in every form, and what is none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.download.values import InvalidValuesError, to_vectors

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2], None, [], [-3, 4]], pa.list_(pa.int64())),
        pa.array([[1, 2], None, None, [-3, 4]], pa.list_(pa.float64(), 2)),
        pa.array([[1, 2], None, [], [-3, 4]], pa.large_list(pa.float32())),
        pa.array(["[1,2]", None, "[ ]", " [ -3.0 , 4e0 ]\n"]),
        pa.array([b"[1,2.]", None, b"[]", b"[-3,+4]"]),
        pa.array(["{1,2}", None, "{}", "{-3,4.0}"]),  # arrays of PostgreSQL
    ],
)
def test_lists_and_texts(values):
    found = to_vectors(values)
    assert found.type == pa.list_(pa.float32())
    assert found.to_pylist() == [[1, 2], None, None, [-3, 4]]


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        (pa.array([[1.0], [np.nan], [2.0, np.inf]]), [0, 1, 1]),
        (pa.array([[1.0], None, [2.0, None]]), [0, 0, 1]),
        (pa.array([[1e300], [1e30]]), [1, 0]),
        (pa.array(["[1]", "1", "[1;2]", "[1,]", "[null]", "", "[[1]]", "[1 2]"]), [0] + [1] * 7),
        (pa.array(["{1}", "{1]", "[1}", "{1,NULL}"]), [0, 1, 1, 1]),
        (pa.array(["[1e999]", None]), [1, 0]),
    ],
)
def test_other_values_are_marked(values, bad):
    with pytest.raises(InvalidValuesError) as caught:
        to_vectors(values)
    assert caught.value.mask.tolist() == [flag == 1 for flag in bad]


@pytest.mark.parametrize("values", [pa.array([1.5]), pa.array([["a"]]), pa.array([[[1.0]]])])
def test_types_without_lists_of_numbers(values):
    with pytest.raises(pa.ArrowInvalid, match="no lists"):
        to_vectors(values)


@given(st.lists(st.none() | st.lists(FLOATS, min_size=1)))
def test_text_and_lists_are_alike(rows):
    texts = pa.array([None if row is None else str(row) for row in rows], pa.string())
    found = to_vectors(texts)
    assert found.equals(to_vectors(pa.array(rows, pa.list_(pa.float64()))))
    assert found.to_pylist() == rows
