"""Ragged arrays: rows of different lengths, one after the other in flat arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def offsets_of(lengths: NDArray[Any]) -> Ints:
    """Return where each row starts, and where the last one ends: [n + 1]."""
    return np.asarray(np.append(0, np.cumsum(lengths, dtype=np.int64)))


def row_of_each(lengths: NDArray[Any]) -> Ints:
    """Return the row of each value."""
    return np.asarray(np.arange(len(lengths)).repeat(lengths))


def step_of_each(lengths: NDArray[Any]) -> Ints:
    """Return the position of each value in its row, from 0."""
    return ranges(np.zeros(len(lengths), np.int64), lengths)


def ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> Ints:
    """Concatenate arange(start, start + length) of every pair."""
    offsets = offsets_of(lengths)
    return np.asarray(np.arange(offsets[-1]) + (starts - offsets[:-1]).repeat(lengths))


def cut(lengths: NDArray[Any], n_most: int) -> Iterator[slice]:
    """Cut rows into consecutive parts of at most `n_most` values, or one row; at least one part."""
    offsets, start = offsets_of(lengths), 0
    while True:
        end = int(np.searchsorted(offsets, offsets[start] + n_most, side="right")) - 1
        end = min(max(end, start + 1), len(lengths))
        yield slice(start, end)
        start = end
        if start >= len(lengths):
            return
