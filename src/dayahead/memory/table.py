"""Sparse sums that decay: a few channels of numbers for each (row, column) seen together."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.memory.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
FLOOR = 0.02
"""A cell goes when none of its channels is above this."""


class Cells(NamedTuple):
    """Sorted cells of a table, and where each of its rows begins."""

    rows: Ints
    """[R] distinct, ascending."""
    offsets: Ints
    """[R + 1] into the cells."""
    columns: NDArray[np.int32]
    """[N] ascending within a row."""
    values: NDArray[np.float32]
    """[N, K]"""
    masses: NDArray[np.float32]
    """[R, K] sums over each row."""


class DecayedTable:
    """Sums over events, each worth 2^(-age/h) in the channel of half-life h."""

    def __init__(self, half_lives: tuple[float, ...]) -> None:
        self.half_lives = np.array(half_lives)
        self._set(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros((0, len(half_lives))))

    def _set(self, rows: Ints, columns: NDArray[np.int32], values: NDArray[np.floating]) -> None:
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        offsets = np.append(starts, len(rows))
        values = values.astype(np.float32)
        masses = np.add.reduceat(values, starts, dtype=np.float64) if len(rows) else values
        self.cells = Cells(rows[starts], offsets, columns, values, masses.astype(np.float32))

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.cells.columns)

    @property
    def row_of_cell(self) -> Ints:
        """[N]"""
        return self.cells.rows.repeat(np.diff(self.cells.offsets))

    def add(self, rows: Ints, columns: Ints, values: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add values [M, K] to the cells; equal cells sum."""
        order = np.lexsort([columns, rows])
        rows, columns, values = rows[order], columns[order].astype(np.int32), values[order]
        is_new = np.append(True, (np.diff(rows) != 0) | (np.diff(columns) != 0))[: len(rows)]
        starts = np.flatnonzero(is_new)
        if len(starts):
            values = np.add.reduceat(values, starts)
        old = self.row_of_cell, self.cells.columns, self.cells.values
        new = rows[starts], columns[starts], values
        self._set(*_merged(*old, *new, 2.0 ** (-elapsed / self.half_lives), FLOOR))

    def state_dict(self) -> dict[str, Tensor]:
        """Rows int64 [N], columns int32 [N] and values float32 [N, K] of all cells."""
        arrays = {"rows": self.row_of_cell, "columns": self.cells.columns}
        arrays["values"] = self.cells.values
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all cells."""
        self._set(*(state[name].numpy() for name in ("rows", "columns", "values")))


@compiled
def _merged(  # noqa: C901, PLR0912, PLR0913, PLR0917
    rows: Ints,
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    new_rows: Ints,
    new_columns: NDArray[np.int32],
    new_values: Floats,
    factors: Floats,
    floor: float,
) -> tuple[Ints, NDArray[np.int32], NDArray[np.float32]]:
    """Merge sorted cells with sorted new ones, decaying the old; drop those at the floor."""
    n, m, k = len(rows), len(new_rows), len(factors)
    out_rows = np.empty(n + m, np.int64)
    out_columns = np.empty(n + m, np.int32)
    out_values = np.empty((n + m, k), np.float32)
    i = j = end = 0
    while i < n or j < m:
        order = 0
        if i == n:
            order = 1
        elif j == m:
            order = -1
        elif rows[i] != new_rows[j]:
            order = -1 if rows[i] < new_rows[j] else 1
        elif columns[i] != new_columns[j]:
            order = -1 if columns[i] < new_columns[j] else 1
        out_rows[end] = rows[i] if order <= 0 else new_rows[j]
        out_columns[end] = columns[i] if order <= 0 else new_columns[j]
        is_alive = False
        for c in range(k):
            value = 0.0
            if order <= 0:
                value += values[i, c] * factors[c]
            if order >= 0:
                value += new_values[j, c]
            out_values[end, c] = value
            is_alive |= value > floor
        i += order <= 0
        j += order >= 0
        end += is_alive
    return out_rows[:end].copy(), out_columns[:end].copy(), out_values[:end].copy()
