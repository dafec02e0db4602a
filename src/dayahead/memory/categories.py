"""Category memory: what is clicked next under each value of a categorical column."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.prefixes import with_prefix
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.table import Columns, DecayedTable, Floats, Sums

HALF_LIFE = 2.0
_ITEM_BITS = 32
"""Row of column g, value v and last item a: ((v * G + g) << 32) + a; a is 0 for the clicks."""


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
        is_known = sessions.items >= N_RESERVED
        is_next = is_known & np.append(False, is_known[:-1])
        is_next[sessions.offsets[:-1]] = False
        [clicks] = is_next.nonzero()
        worth = (2.0 ** (-ages[clicks] / HALF_LIFE)).repeat(self.n_columns)[:, None]
        items, before = (
            sessions.items[each].repeat(self.n_columns) for each in (clicks, clicks - 1)
        )
        rows = self._rows(sessions.categories[clicks - 1]).ravel()
        self.clicks.add(rows, items, worth, elapsed)
        self.transitions.add(rows + before, items, worth, elapsed)

    def _rows(self, values: Ints) -> Ints:
        """[B, G] the row of each value in the table of clicks."""
        return (values * self.n_columns + np.arange(self.n_columns)) << _ITEM_BITS

    def evidence(self, prefixes: Clicks, candidates: Columns, n: int) -> Sums:
        """Read the counts of each prefix's candidates [B, C], below `n`; 0 is none.

        In 2G channels: first the G columns' clicks, then their transitions from the last item.
        """
        of_clicks = self._rows(prefixes.categories[prefixes.last])
        of_transitions = of_clicks + prefixes.items[prefixes.last, None]
        one = np.ones((1, 1), np.float32)
        sums = [
            table.read(rows[:, [column]], one, candidates, n)
            for table, rows in ((self.clicks, of_clicks), (self.transitions, of_transitions))
            for column in range(self.n_columns)
        ]
        counts = [np.zeros((*candidates.shape, 0), np.float32), *(each.counts for each in sums)]
        masses = [np.zeros((len(candidates), 0), np.float32), *(each.masses for each in sums)]
        return Sums(np.concatenate(counts, axis=-1), np.concatenate(masses, axis=-1))

    def _tables(self) -> dict[str, DecayedTable]:
        return {"clicks": self.clicks, "transitions": self.transitions}

    def state_dict(self) -> dict[str, Tensor]:
        """The cells of both tables."""
        return {
            f"{name}.{part}": tensor
            for name, table in self._tables().items()
            for part, tensor in table.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the cells of both tables."""
        for name, table in self._tables().items():
            table.load_state_dict(with_prefix(state, f"{name}."))
