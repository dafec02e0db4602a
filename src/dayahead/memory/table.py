"""Sparse matrix of decayed sums: a few channels of numbers for each (row, column) seen together."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.memory.clicks import Ints
from dayahead.memory.compiled import compiled

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Columns = NDArray[np.int32]
FLOOR = 0.02
"""A cell is dropped when none of its channels is above this."""


class Sums(NamedTuple):
    """Counts of a memory for B prefixes and their C candidates, in K channels."""

    counts: Floats32
    """[B, C, K]"""
    masses: Floats32
    """[B, K] totals: the sum of the counts over all items, not only the candidates."""


class Cells(NamedTuple):
    """Sorted cells of a table and the start of each row, as in a CSR matrix."""

    rows: Ints
    """[R] row keys, distinct and ascending."""
    offsets: Ints
    """[R + 1] start of each row in the cells, and the end of the last one."""
    columns: Columns
    """[N] ascending within a row."""
    values: Floats32
    """[N, K]"""
    masses: Floats32
    """[R, K] total of each row."""


class Lookup(NamedTuple):
    """The rows of a table that each of B prefixes reads."""

    cells: Cells
    rows: Ints
    """[B, R] keys of the rows; missing ones count as empty."""
    weights: Floats32
    """[R, K] weight of each row in each channel."""

    def sums(self, candidates: Columns, n: int) -> Sums:
        """Sum up the rows at each prefix's candidates [B, C], which are below `n`; 0 is none."""
        return Sums(*_read(*self, candidates, n))


class _Sorted(NamedTuple):
    """Cells before they are indexed."""

    rows: Ints
    columns: Columns
    values: Floats | Floats32


class DecayedTable:
    """Sums over events, each with the weight 2^(-age/h) in the channel of half-life h."""

    parts = _Sorted._fields
    """Names of the tensors of its state."""

    def __init__(self, half_lives: tuple[float, ...]) -> None:
        self.half_lives = np.array(half_lives)
        none = np.zeros((0, len(half_lives)), np.float32)
        self._set(np.zeros(0, np.int64), np.zeros(0, np.int32), none)

    def _set(self, rows: Ints, columns: Columns, values: Floats32) -> None:
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        offsets = np.append(starts, len(rows))
        # Summed in float64: a row may have as many cells as there are items.
        masses = np.add.reduceat(values, starts, dtype=np.float64) if len(rows) else values
        self.cells = Cells(rows[starts], offsets, columns, values, masses.astype(np.float32))

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.cells.columns)

    def _row_of_cell(self) -> Ints:
        return self.cells.rows.repeat(np.diff(self.cells.offsets))

    def add(self, rows: Ints, columns: Ints, values: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add values [M, K] to the cells; equal cells sum."""
        order = np.lexsort([columns, rows])
        rows, columns, values = rows[order], columns[order], values[order]
        is_start = np.diff(rows, prepend=-1) != 0
        is_start |= np.diff(columns, prepend=-1) != 0
        [starts] = is_start.nonzero()
        if len(starts):
            values = np.add.reduceat(values, starts)
        new = _Sorted(rows[starts], columns[starts].astype(np.int32), values)
        old = _Sorted(self._row_of_cell(), self.cells.columns, self.cells.values)
        self._set(*_merged(old, new, 2.0 ** (-elapsed / self.half_lives)))

    def state_dict(self) -> dict[str, Tensor]:
        """Rows int64 [N], columns int32 [N] and values float32 [N, K] of all cells."""
        arrays = self._row_of_cell(), self.cells.columns, self.cells.values
        return dict(zip(_Sorted._fields, map(torch.from_numpy, arrays), strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all cells."""
        self._set(*(state[name].numpy() for name in _Sorted._fields))


@compiled
def _key(cells: _Sorted, i: int) -> tuple[np.int64, np.int64]:
    """Return row and column of a cell; past the end a key larger than all others."""
    if i < len(cells.rows):
        return cells.rows[i], np.int64(cells.columns[i])
    return np.int64(np.iinfo(np.int64).max), np.int64(0)


@compiled
def _merged(old: _Sorted, new: _Sorted, factors: Floats) -> tuple[Ints, Columns, Floats32]:
    """Merge sorted cells with sorted new ones, decaying the old; drop cells at or below FLOOR."""
    size = len(old.rows) + len(new.rows)
    rows, columns = np.empty(size, np.int64), np.empty(size, np.int32)
    values = np.zeros((size, len(factors)), np.float32)
    i = j = end = 0
    for _ in range(size):
        if i + j == size:
            break
        key, new_key = _key(old, i), _key(new, j)
        is_old, is_new = key <= new_key, new_key <= key
        # Written at `end` in any case; the next cell overwrites one that is not kept.
        rows[end], columns[end] = key if is_old else new_key
        is_alive = False
        for k in range(len(factors)):
            value = old.values[i, k] * factors[k] if is_old else 0.0
            values[end, k] = value + (new.values[j, k] if is_new else 0.0)
            is_alive |= values[end, k] > FLOOR
        i, j, end = i + is_old, j + is_new, end + is_alive
    # Copies: views would keep the whole buffers alive.
    return rows[:end].copy(), columns[:end].copy(), values[:end].copy()


@compiled
def _add_weighted(sums: Floats32, weights: Floats32, values: Floats32) -> None:
    for k in range(len(sums)):
        sums[k] += weights[k] * values[k]


@compiled
def _read(
    cells: Cells, rows: Ints, weights: Floats32, candidates: Columns, n: int
) -> tuple[Floats32, Floats32]:
    counts = np.zeros((*candidates.shape, weights.shape[1]), np.float32)
    masses = np.zeros((len(candidates), weights.shape[1]), np.float32)
    slots = np.full(n, -1, np.int64)
    for b in range(len(candidates)):
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = c
        # Candidate 0 is padding and must match no column.
        slots[0] = -1
        for r in range(rows.shape[1]):
            row = np.searchsorted(cells.rows, rows[b, r])
            if row < len(cells.rows) and cells.rows[row] == rows[b, r]:
                _add_weighted(masses[b], weights[r], cells.masses[row])
                for cell in range(cells.offsets[row], cells.offsets[row + 1]):
                    slot = slots[cells.columns[cell]]
                    if slot >= 0:
                        _add_weighted(counts[b, slot], weights[r], cells.values[cell])
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = -1
    return counts, masses
