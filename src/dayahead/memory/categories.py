"""Category memory: what is clicked next under each value of a categorical column."""

import numpy as np

from dayahead.config.memory import MemoryConfig
from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.evidence import CandidateBatch, CountMemory
from dayahead.memory.table import DecayedTable, Floats, Floats32, Lookup

_ITEM_BITS = 32
"""Row of column g, value v and last item a: ((v * G + g) << 32) + a; a is 0 for the clicks."""


class CategoryMemory(CountMemory):
    """Decayed counts of next clicks by (value, item) and by (value, last item, item).

    The channels are the G columns' clicks by half-life, then their transitions from the last item.
    """

    name = "categories"
    prior = 10.0
    is_relative = True

    def __init__(self, config: MemoryConfig, columns: tuple[str, ...]) -> None:
        self.n_columns, half_lives = len(columns), config.category_half_lives
        self.clicks = DecayedTable(half_lives)
        self.transitions = DecayedTable(half_lives)
        self.tables = {"clicks": self.clicks, "transitions": self.transitions}
        self.names = tuple(
            f"category.{kind}.{name}.{half_life:g}"
            for kind in ("clicks", "next")
            for name in columns
            for half_life in half_lives
        )

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old.

        A click counts under the values of the click before it, which are known beforehand.
        """
        is_known = sessions.items >= N_RESERVED
        is_next = is_known & np.append(False, is_known[:-1])
        is_next[sessions.offsets[:-1]] = False
        [clicks] = is_next.nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.clicks.half_lives)
        worth = decay.repeat(self.n_columns, axis=0)
        items, before = (
            sessions.items[each].repeat(self.n_columns) for each in (clicks, clicks - 1)
        )
        rows = self._rows(sessions.categories[clicks - 1]).ravel()
        self.clicks.add(rows, items, worth, elapsed)
        self.transitions.add(rows + before, items, worth, elapsed)

    def _rows(self, values: Ints) -> Ints:
        """[B, G] the row of each value in the table of clicks."""
        return (values * self.n_columns + np.arange(self.n_columns)) << _ITEM_BITS

    def lookups(self, prefixes: Clicks, _end: int) -> list[Lookup]:
        """Return the row of each value of the last click, then the rows of value and last item."""
        of_clicks = self._rows(prefixes.categories[prefixes.last])
        of_transitions = of_clicks + prefixes.items[prefixes.last, None]
        ones = np.ones((1, len(self.clicks.half_lives)), np.float32)
        return [
            Lookup(table.cells, rows[:, [column]], ones)
            for table, rows in ((self.clicks, of_clicks), (self.transitions, of_transitions))
            for column in range(self.n_columns)
        ]

    def expected(self, batch: CandidateBatch) -> Floats32:
        """Clicks are compared with popularity, transitions with the pairs of the last item."""
        assert batch.transitions is not None
        n = len(self.names) // 2
        return np.concatenate([batch.popularity.repeat(n, 2), batch.transitions.repeat(n, 2)], 2)
