"""Cells of a sparse matrix, in order of row and column: sums over equal ones, and merges."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dayahead.memory.clicks import Columns, Flags, Floats, Floats32, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.threads import side_by_side

FEW_CELLS = 1 << 17
"""These take milliseconds: they are left to one thread, and are waited for."""


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


class SortedCells(NamedTuple):
    """Distinct cells before they are indexed, ascending by row and column."""

    rows: Ints
    columns: Columns
    values: Floats | Floats32

    def part(self, start: int, end: int) -> "SortedCells":
        """Return the cells from `start` to `end`."""
        return SortedCells(self.rows[start:end], self.columns[start:end], self.values[start:end])

    def cut(self, rows: Ints) -> "list[SortedCells]":
        """Return the cells before the first of these rows, those from there to the next, ..."""
        starts = [0, *np.searchsorted(self.rows, rows).tolist(), len(self.rows)]
        return [self.part(*ends) for ends in pairwise(starts)]


def no_cells(n_channels: int) -> Cells:
    """Return cells without rows."""
    none = np.zeros((0, n_channels), np.float32)
    no = np.zeros(0, np.int64)
    return Cells(no, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)


class Buffers(NamedTuple):
    """Room for M cells in K channels, of which only a part may be needed."""

    rows: Ints
    columns: Columns
    values: Floats | Floats32

    @classmethod
    def of(cls, size: int, n_channels: int, dtype: type[np.floating[Any]]) -> "Buffers":
        """Return room for `size` cells."""
        values = np.empty((size, n_channels), dtype)
        return cls(np.empty(size, np.int64), np.empty(size, np.int32), values)

    def first(self, n: int) -> SortedCells:
        """Return the first cells; the room of the others is given back, without a copy."""
        for array in self:
            array.resize((n, *array.shape[1:]), refcheck=False)
        return SortedCells(*self)


def written(
    room: Buffers, sizes: Sequence[int], write: Callable[[int, Buffers], int]
) -> SortedCells:
    """Return the cells that are written to parts of some room, each by a thread of its own.

    Args:
        room: for all of them.
        sizes: of the parts.
        write: writes a part, given its number and room; returns the number of its cells.
    """
    starts = np.append(0, np.cumsum(sizes)).tolist()
    parts = (Buffers(*SortedCells(*room).part(*ends)) for ends in pairwise(starts))
    counts = side_by_side(write, range(len(sizes)), parts)
    end = counts[0]
    for start, n in zip(starts[1:], counts[1:], strict=False):
        for array in room:
            # Flat, as NumPy moves values of one dimension without a copy.
            values, width = array.reshape(-1), array[:1].size
            values[end * width : (end + n) * width] = values[start * width : (start + n) * width]
        end += n
    return room.first(end)


def n_parts(n_cells: int, n_threads: int) -> int:
    """Return the number of parts that so many cells are worth, of `n_threads` at most."""
    return n_threads if n_cells > FEW_CELLS else 1


def indexed(cells: SortedCells, n_threads: int = 1) -> Cells:
    """Return where each row starts, and its total."""
    rows, columns, values = cells
    if not len(rows):
        return no_cells(values.shape[1])
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    offsets = np.append(starts, len(rows))
    cuts = np.linspace(0, len(starts), n_parts(len(rows), n_threads) + 1).astype(int)
    parts = (offsets[start : end + 1] for start, end in pairwise(cuts))
    masses = np.concatenate(side_by_side(partial(_masses, values), parts))
    return Cells(rows[starts], offsets, columns, values.astype(np.float32, copy=False), masses)


def flat(cells: Cells) -> SortedCells:
    """Return the cells with the row of each."""
    rows = cells.rows.repeat(np.diff(cells.offsets))
    return SortedCells(rows, cells.columns, cells.values)


def summed(rows: Ints, columns: Ints, values: Floats) -> SortedCells:
    """Sort cells with values [M, K]; equal ones sum."""
    order = np.lexsort([columns, rows])
    sums = Buffers.of(len(order), values.shape[1], np.float64)
    return sums.first(_sum(order, rows, columns, values, sums))


@compiled
def _sum(order: Ints, rows: Ints, columns: Ints, values: Floats, sums: Buffers) -> int:
    """Write the distinct cells of sorted ones, and the sums of their values; return how many."""
    # Names of their own, as Numba counts a reference each time that a tuple's array is read.
    sum_rows, sum_columns, sum_values = sums
    end = 0
    for i in order:
        if end == 0 or rows[i] != sum_rows[end - 1] or columns[i] != sum_columns[end - 1]:
            sum_rows[end], sum_columns[end] = rows[i], columns[i]
            sum_values[end] = 0.0
            end += 1
        for k in range(values.shape[1]):
            sum_values[end - 1, k] += values[i, k]
    return end


@compiled
def _masses(values: Floats | Floats32, offsets: Ints) -> Floats32:
    """Return the total of each row; summed in float64, as it may have as many cells as items."""
    masses = np.empty((len(offsets) - 1, values.shape[1]), np.float32)
    totals = np.empty(values.shape[1], np.float64)
    for r in range(len(masses)):
        totals[:] = 0.0
        for i in range(offsets[r], offsets[r + 1]):
            for k in range(len(totals)):
                totals[k] += values[i, k]
        masses[r] = totals
    return masses


def largest_cells(cells: SortedCells, n_most: int) -> SortedCells:
    """Return at most `n_most` cells, those with the largest values; the rest is given back."""
    n_extra = len(cells.rows) - n_most
    if n_extra <= 0:
        return cells
    largest = _largest(cells.values)
    limit = np.partition(largest, n_extra - 1)[n_extra - 1]
    is_held = largest > limit
    # Many cells may be as large as the limit: the order decides.
    [ties] = (largest == limit).nonzero()
    is_held[ties[n_extra - int((largest < limit).sum()) :]] = True
    return Buffers(*cells).first(_move_up(cells, is_held))


@compiled
def _largest(values: Floats | Floats32) -> Floats32:
    """Return the largest value of each row; ten times as fast as NumPy for 14 columns."""
    largest = np.empty(len(values), np.float32)
    for i in range(len(values)):
        most = values[i, 0]
        for k in range(1, values.shape[1]):
            most = max(most, values[i, k])
        largest[i] = most
    return largest


@compiled
def _move_up(cells: SortedCells, is_held: Flags) -> int:
    """Move the cells that are held to the start; return how many they are."""
    rows, columns, values = cells
    end = 0
    for i in range(len(rows)):
        if is_held[i]:
            rows[end], columns[end] = rows[i], columns[i]
            for k in range(values.shape[1]):
                values[end, k] = values[i, k]
            end += 1
    return end


@compiled
def _key(cells: SortedCells, i: int) -> tuple[np.int64, np.int64]:
    """Return row and column of a cell; past the end a key larger than all others."""
    if i < len(cells.rows):
        return cells.rows[i], np.int64(cells.columns[i])
    return np.int64(np.iinfo(np.int64).max), np.int64(0)


def merged(
    old: SortedCells, new: SortedCells, factors: Floats, floor: float, n_threads: int = 1
) -> SortedCells:
    """Add new cells to old ones, which decay; drop those at or below a floor in all channels."""
    size, longer = len(old.rows) + len(new.rows), max(old.rows, new.rows, key=len)
    n = n_parts(size, n_threads)
    rows = longer[np.arange(1, n) * len(longer) // n]
    parts = [*zip(old.cut(rows), new.cut(rows), strict=True)]
    return written(
        Buffers.of(size, len(factors), np.float32),
        [len(old.rows) + len(new.rows) for old, new in parts],
        lambda part, room: _merge(*parts[part], factors, floor, room),
    )


@compiled
def _merge(
    old: SortedCells, new: SortedCells, factors: Floats, floor: float, merged: Buffers
) -> int:
    rows, columns, values = merged
    size = len(rows)
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
            is_alive |= values[end, k] > floor
        i, j, end = i + is_old, j + is_new, end + is_alive
    return end
