"""Rows as of a time, compared with a loop over all rows."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dayahead.features.as_of import AsOf

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)))


def rows_of(table, wanted):
    keys, times = ([pair[n] for pair in table] for n in (0, 1))
    as_of = AsOf(pa.chunked_array([pa.array(keys, pa.int64())]), np.array(times, np.int64))
    keys, times = ([pair[n] for pair in wanted] for n in (0, 1))
    return as_of.rows(pa.chunked_array([pa.array(keys, pa.int64())]), np.array(times, np.int64))


def test_the_newest_row_that_is_not_later():
    table = [(7, 10), (7, 20), (3, 15)]
    wanted = [(7, 9), (7, 10), (7, 19), (7, 20), (3, 14), (3, 99), (8, 99)]
    assert rows_of(table, wanted).tolist() == [-1, 0, 0, 1, -1, 2, -1]


def test_an_empty_table_has_no_row():
    assert rows_of([], [(1, 1)]).tolist() == [-1]


@given(table=PAIRS, wanted=PAIRS)
def test_any_table(table, wanted):
    table = sorted(set(table))
    expected = [
        max((n for n, (k, t) in enumerate(table) if k == key and t <= time), default=-1)
        for key, time in wanted
    ]
    assert rows_of(table, wanted).tolist() == expected
