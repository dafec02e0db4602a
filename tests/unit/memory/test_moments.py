"""Mean and deviation of the rows that count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.memory.moments import moments


def rows(seed, n):
    dice = np.random.default_rng(seed)
    values = (1000 + dice.standard_normal((n, 3))).astype(np.float32)
    counts = dice.random(n) < 0.7
    counts[0] = True
    return values, counts


@given(st.integers(0, 1000), st.integers(1, 300))
def test_they_are_those_of_numpy(seed, n):
    values, counts = rows(seed, n)
    mean, deviation = moments([(values, counts)])
    counted = values[counts].astype(np.float64)
    assert mean == pytest.approx(counted.mean(0), rel=1e-12)
    assert deviation == pytest.approx(counted.std(0), abs=1e-9)


@given(st.integers(0, 1000), st.lists(st.integers(0, 300), max_size=4))
def test_it_does_not_matter_where_parts_begin(seed, cuts):
    values, counts = rows(seed, 300)
    cuts = sorted(cuts)
    parts = zip(np.split(values, cuts), np.split(counts, cuts), strict=True)
    for whole, found in zip(moments([(values, counts)]), moments([*parts]), strict=True):
        assert np.array_equal(whole, found)
