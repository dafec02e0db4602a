"""Rows of a table of decayed sums, as they are read at the candidates of prefixes."""

from typing import NamedTuple

import numpy as np

from dayahead.memory.cells import Cells, no_cells
from dayahead.memory.clicks import Columns, Floats32, Ints
from dayahead.memory.compiled import compiled

SEARCH_COST = 16
"""Cells that are read one by one in the time of one binary search in a row (measured)."""


class Sums(NamedTuple):
    """Counts of a memory for B prefixes and their C candidates, in K channels."""

    counts: Floats32
    """[B, C, K]"""
    masses: Floats32
    """[B, K] totals: the sum of the counts over all items, not only the candidates."""


class Moment(NamedTuple):
    """A time at which memories are read."""

    time: int
    """Microseconds since 1970."""
    since: float = 0.0
    """Windows since the memories counted last."""


class Level(NamedTuple):
    """Cells that were written at one time."""

    cells: Cells
    decay: Floats32
    """[K] by which their values have decayed since."""


Levels = tuple[Level, Level, Level]
"""Cells of a table, which add."""


def one_level(cells: Cells) -> Levels:
    """Return cells as a table that has nothing else."""
    n_channels = cells.values.shape[1]
    ones = np.ones(n_channels, np.float32)
    none = Level(no_cells(n_channels), ones)
    return Level(cells, ones), none, none


class Lookup(NamedTuple):
    """The rows of a table that each of B prefixes reads."""

    levels: Levels
    rows: Ints
    """[B, R] keys of the rows; missing ones count as empty."""
    weights: Floats32
    """[R, K] weight of each row in each channel."""

    def sums(self, candidates: Columns, n: int) -> Sums:
        """Sum up the rows at each prefix's candidates [B, C], which are below `n`; 0 is none."""
        n_channels = self.weights.shape[1]
        counts = np.zeros((*candidates.shape, n_channels), np.float32)
        sums = Sums(counts, np.zeros((len(candidates), n_channels), np.float32))
        reading = _Reading(sums, candidates, np.full(n, -1, np.int64))
        for cells, decay in self.levels:
            if len(cells.rows):
                _add_rows(reading, cells, self.rows, self.weights * decay)
        return sums


@compiled
def row_of(cells: Cells, key: int) -> int:
    """Return the position of a row, -1 where it is missing."""
    row = np.searchsorted(cells.rows, key)
    return int(row) if row < len(cells.rows) and cells.rows[row] == key else -1


class _Reading(NamedTuple):
    """Sums that are being read from a table."""

    sums: Sums
    candidates: Columns
    """[B, C]"""
    cell_of: Ints
    """[n] cell of each column in the row that is read; all -1 between rows."""


@compiled
def _add_rows(reading: _Reading, cells: Cells, rows: Ints, weights: Floats32) -> None:
    for r in range(rows.shape[1]):
        # Prefixes that read the same row follow each other.
        order = np.argsort(rows[:, r])
        first = 0
        while first < len(order):
            key, end = rows[order[first], r], first + 1
            while end < len(order) and rows[order[end], r] == key:
                end += 1
            row = row_of(cells, key)
            if row >= 0:
                _add_row(reading, cells, row, weights[r], order[first:end])
            first = end


@compiled
def _add_row(reading: _Reading, cells: Cells, row: int, weight: Floats32, prefixes: Ints) -> None:
    """Add a row to the sums of the prefixes that read it."""
    # Names of their own, as Numba counts a reference each time that a tuple's array is read.
    (counts, masses), candidates, cell_of = reading
    _, offsets, columns, values, totals = cells
    start, end = offsets[row], offsets[row + 1]
    # A long row that few prefixes read is searched; any other is spread out once for all.
    n_read = len(prefixes) * candidates.shape[1]
    is_spread = end - start < n_read * SEARCH_COST
    if is_spread:
        cell_of[columns[start:end]] = np.arange(start, end)
        # Candidate 0 is padding and must match no column.
        cell_of[0] = -1
    for b in prefixes:
        masses[b] += weight * totals[row]
        for c in range(candidates.shape[1]):
            item = candidates[b, c]
            cell = cell_of[item] if is_spread else _cell_of(columns, start, end, item)
            if cell >= 0:
                for k in range(len(weight)):
                    counts[b, c, k] += weight[k] * values[cell, k]
    if is_spread:
        cell_of[columns[start:end]] = -1


@compiled
def _cell_of(columns: Columns, start: int, end: int, item: int) -> int:
    """Return the cell of an item among those of a row, -1 where it has none or is padding."""
    cell = start + np.searchsorted(columns[start:end], item)
    return int(cell) if item > 0 and cell < end and columns[cell] == item else -1
