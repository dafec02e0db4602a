"""Sparse matrix of decayed sums: a few channels of numbers for each (row, column) seen together."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dayahead.memory.cells import (
    FEW_CELLS,
    Cells,
    SortedCells,
    flat,
    indexed,
    largest_cells,
    merged,
    no_cells,
    summed,
)
from dayahead.memory.clicks import Floats, Floats32, Ints
from dayahead.memory.lookup import Level, Lookup, Moment
from dayahead.memory.threads import in_background

FLOOR = 0.02
"""A cell is dropped when none of its channels is above this."""
LEVEL_RATIO, LEVEL_RATIO_OF_PARTS = 8, 2
"""The first level of a table has at least this multiple of the last one's cells: where events are
added tick by tick, and where they are added in the parts of a window."""


class DecayedTable:
    """Sums over events, each with the weight 2^(-age/h) in the channel of half-life h.

    Events are added to a small last level, so that the large first one need not be rebuilt each
    time, as in a log-structured merge tree (O'Neil et al. 1996). Where the table `is_live`, few are
    added at a time and nobody should wait: once the last level is too large, its cells are in the
    middle one while they are merged into the first, in the background, by one thread. When that
    begins and ends depends on what is added alone.
    """

    parts = SortedCells._fields
    """Names of the tensors of its state."""

    def __init__(
        self, half_lives: tuple[float, ...], *, is_live: bool = False, n_most: int | None = None
    ) -> None:
        self.half_lives = np.array(half_lives)
        self.is_live = is_live
        self.ratio = LEVEL_RATIO if is_live else LEVEL_RATIO_OF_PARTS
        self.n_most = n_most
        """Most cells held; None: any number. Where there are more, those with the lowest values
        are dropped."""
        self.cells = self.moving = self.recent = no_cells(len(half_lives))
        """The three levels; `recent` is as of the last addition."""
        self.decay = self.moving_decay = np.ones(len(half_lives))
        """[K] by which `cells` and `moving` have decayed since they were written."""
        self._moved: Callable[[], Cells] | None = None
        """Returns `cells` and `moving` in one; None where nothing is moving."""

    def lookup(self, rows: Ints, weights: Floats32, now: Moment) -> Lookup:
        """Return rows [B, R] with weights [R, K], decayed up to a time."""
        since = 2.0 ** (-now.since / self.half_lives)
        levels = (
            Level(self.cells, (self.decay * since).astype(np.float32)),
            Level(self.moving, (self.moving_decay * since).astype(np.float32)),
            Level(self.recent, since.astype(np.float32)),
        )
        return Lookup(levels, rows, weights)

    def __len__(self) -> int:
        """Return the number of cells."""
        return sum(len(each.columns) for each in (self.cells, self.moving, self.recent))

    def add(self, rows: Ints, columns: Ints, values: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add values [M, K] to the cells; equal cells sum."""
        self.merge(summed(rows, columns, values), elapsed)

    def merge(self, new: SortedCells, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add cells."""
        factors = 2.0 ** (-elapsed / self.half_lives)
        self.decay, self.moving_decay = self.decay * factors, self.moving_decay * factors
        n_threads = torch.get_num_threads()
        recent = merged(flat(self.recent), new, factors, 0.0, n_threads)
        self.recent = indexed(recent, n_threads)
        # A move ends before the next one is due, so that it has half of the time between them.
        if len(self.recent.columns) * self.ratio * 2 > len(self.cells.columns):
            self._end_move()
        if len(self.recent.columns) * self.ratio > len(self.cells.columns):
            self._move(waits=not self.is_live or len(self.cells.columns) < FEW_CELLS)

    def compact(self) -> None:
        """Move all cells to the first level."""
        self._end_move()
        if len(self.recent.columns) or (self.decay != 1).any():
            self._move(waits=True)

    def _move(self, *, waits: bool) -> None:
        """Merge the last level into the first, in the background unless it `waits`."""
        self.moving, self.recent = self.recent, no_cells(len(self.half_lives))
        self.moving_decay = np.ones(len(self.half_lives))
        n_threads = torch.get_num_threads() if waits else 1
        work = partial(_joined, self.cells, self.moving, self.decay, self.n_most, n_threads)
        self._moved = work if waits else in_background(work)
        if waits:
            self._end_move()

    def _end_move(self) -> None:
        if self._moved is not None:
            self.cells, self.decay = self._moved(), self.moving_decay
            self.moving, self._moved = no_cells(len(self.half_lives)), None

    def state_dict(self) -> dict[str, Tensor]:
        """Rows int64 [N], columns int32 [N] and values float32 [N, K] of all cells, compacted."""
        self.compact()
        return dict(zip(self.parts, map(torch.from_numpy, flat(self.cells)), strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all cells."""
        self.cells = indexed(SortedCells(*(state[name].numpy() for name in self.parts)))
        self.moving = self.recent = no_cells(len(self.half_lives))
        self.decay = self.moving_decay = np.ones(len(self.half_lives))
        self._moved = None


def _joined(old: Cells, new: Cells, decay: Floats, n_most: int | None, n_threads: int) -> Cells:
    cells = merged(flat(old), flat(new), decay, FLOOR, n_threads)
    return indexed(cells if n_most is None else largest_cells(cells, n_most), n_threads)
