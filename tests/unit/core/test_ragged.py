"""Ragged arrays, beside loops over their rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.ragged import offsets_of, ranges, row_of_each, step_of_each

LENGTHS = st.lists(st.integers(0, 5), max_size=8).map(lambda each: np.array(each, np.int64))


@given(LENGTHS)
def test_rows_steps_and_offsets_are_those_of_a_loop(lengths):
    rows = [list(range(length)) for length in lengths]
    assert row_of_each(lengths).tolist() == [r for r, row in enumerate(rows) for _ in row]
    assert step_of_each(lengths).tolist() == [step for row in rows for step in row]
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    assert offsets_of(lengths).tolist() == ends


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), max_size=8))
def test_ranges_are_those_of_arange(pairs):
    starts, lengths = np.array(pairs, np.int64).reshape(-1, 2).T
    wanted = [value for start, n in pairs for value in range(start, start + n)]
    assert ranges(starts, lengths).tolist() == wanted


def test_short_integers_do_not_overflow():
    lengths = np.full(300, 200, np.uint8)
    assert offsets_of(lengths)[-1] == 60_000
    assert step_of_each(lengths).max() == 199
