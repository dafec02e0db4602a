"""Sorted cells: work that is divided over threads gives the bytes of one thread."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.memory import cells
from dayahead.memory.cells import Buffers, SortedCells, indexed, merged, n_parts, written
from support.clicks import seeds

HALF = np.array([0.5, 1.0])
FLOOR = 0.4


@pytest.fixture(autouse=True)
def no_cells_are_few(monkeypatch):
    monkeypatch.setattr(cells, "FEW_CELLS", 0)


def drawn(dice, n_rows):
    """Distinct cells of some rows, of which many have none."""
    [keys] = (dice.random(n_rows * 7) < dice.random()).nonzero()
    values = dice.random((len(keys), 2)).astype(np.float32)
    return SortedCells(keys // 7, (keys % 7).astype(np.int32), values)


def assert_equal(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


@given(seeds, st.integers(1, 12), st.integers(2, 9))
def test_any_number_of_threads_merges_and_indexes_alike(seed, n_rows, n_threads):
    dice = np.random.default_rng(seed)
    old, new = drawn(dice, n_rows), drawn(dice, n_rows)
    alone = merged(old, new, HALF, FLOOR)
    assert_equal(merged(old, new, HALF, FLOOR, n_threads), alone)
    assert_equal(indexed(alone, n_threads), indexed(alone))


def test_what_is_left_of_the_parts_is_joined():
    """Parts of 3, 2, 0 and 4 cells, of which 2, 0, 0 and 3 are written."""
    counts = [2, 0, 0, 3]

    def write(part, room):
        for each in room:
            each[:] = 10 * part
            each[: counts[part]] += 1
        return counts[part]

    found = written(Buffers.of(9, 2, np.float32), [3, 2, 0, 4], write)
    assert found.rows.tolist() == found.columns.tolist() == [1, 1, 31, 31, 31]
    assert found.values.tolist() == [[1, 1]] * 2 + [[31, 31]] * 3


def test_few_cells_are_left_to_one_thread(monkeypatch):
    monkeypatch.setattr(cells, "FEW_CELLS", 100)
    assert [n_parts(size, 3) for size in (0, 100, 101)] == [1, 1, 3]
