"""Category memory: what is clicked next under each value of a categorical column."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.table import Cells, DecayedTable, Floats

HALF_LIFE = 2.0
_VALUE = 32
"""Row of (column g, value v, last item a): ((v * G + g) << 32) + a; a is 0 where none is asked."""


class CategoryMemory:
    """Decayed counts of next clicks by (value, item) and by (value, last item, item)."""

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns
        self.clicks = DecayedTable((HALF_LIFE,))
        self.transitions = DecayedTable((HALF_LIFE,))

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old.

        A click counts under the values of the click before it, which are known beforehand.
        """
        is_next = np.ones(len(sessions.items), bool)
        is_next[sessions.offsets[:-1]] = False
        is_next[1:] &= (sessions.items[1:] >= N_RESERVED) & (sessions.items[:-1] >= N_RESERVED)
        [clicks] = is_next.nonzero()
        worth = (2.0 ** (-ages[clicks] / HALF_LIFE)).repeat(self.n_columns)[:, None]
        items = sessions.items[clicks].repeat(self.n_columns)
        before = sessions.items[clicks - 1].repeat(self.n_columns)
        rows = self._rows(sessions.categories[clicks - 1]).ravel()
        self.clicks.add(rows, items, worth, elapsed)
        self.transitions.add(rows + before, items, worth, elapsed)

    def _rows(self, values: Ints) -> Ints:
        """[B, G] the row of each value in the table of clicks."""
        return (values * self.n_columns + np.arange(self.n_columns)) << _VALUE

    def evidence(
        self, prefixes: Clicks, candidates: NDArray[np.int32], n: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Read the counts [B, C, 2G] of each prefix's candidates, and the sums [B, 2G] over all.

        First the G columns' clicks, then their transitions from the prefix's last item.
        """
        rows = self._rows(prefixes.categories[prefixes.last])
        last = prefixes.items[prefixes.last, None]
        return _evidence(self.clicks.cells, self.transitions.cells, rows, last, candidates, n)

    def state_dict(self) -> dict[str, Tensor]:
        """The tables `clicks` and `transitions`."""
        tables = {"clicks": self.clicks, "transitions": self.transitions}
        return {
            f"{name}.{part}": tensor
            for name, table in tables.items()
            for part, tensor in table.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace both tables."""
        for name, table in (("clicks", self.clicks), ("transitions", self.transitions)):
            table.load_state_dict(
                {
                    part.removeprefix(f"{name}."): tensor
                    for part, tensor in state.items()
                    if part.startswith(f"{name}.")
                }
            )


@compiled
def _evidence(
    clicks: Cells,
    transitions: Cells,
    rows: Ints,
    last: Ints,
    candidates: NDArray[np.int32],
    n: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    n_rows, n_columns = rows.shape
    counts = np.zeros((n_rows, candidates.shape[1], 2 * n_columns), np.float32)
    masses = np.zeros((n_rows, 2 * n_columns), np.float32)
    slots = np.full(n, -1, np.int32)
    for b in range(n_rows):
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = c
        slots[0] = -1
        for k in range(2 * n_columns):
            cells = clicks if k < n_columns else transitions
            wanted = rows[b, k % n_columns] + (0 if k < n_columns else last[b, 0])
            row = np.searchsorted(cells.rows, wanted)
            if row < len(cells.rows) and cells.rows[row] == wanted:
                masses[b, k] = cells.masses[row, 0]
                for cell in range(cells.offsets[row], cells.offsets[row + 1]):
                    slot = slots[cells.columns[cell]]
                    if slot >= 0:
                        counts[b, slot, k] = cells.values[cell, 0]
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = -1
    return counts, masses
