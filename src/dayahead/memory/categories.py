"""Category memory: what is clicked next under each value of a categorical column."""

import numpy as np

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Floats, Floats32, Ints
from dayahead.memory.evidence import CandidateBatch, CountMemory
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Lookup, Moment
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import DecayedTable

_ITEM_BITS = 32
"""Row of column g, value v and last item a: ((v * G + g) << 32) + a; a is 0 for the clicks."""


class CategoryMemory(CountMemory):
    """Decayed counts of next clicks by (value, item) and by (value, last item, item).

    The channels are the G columns' clicks by half-life, then their transitions from the last item.
    """

    name = "categories"
    prior = 10.0
    is_relative = True

    def __init__(self, settings: MemorySettings) -> None:
        self.n_columns, half_lives = len(settings.columns), settings.half_lives("category")
        windows = tuple(half_life.windows for half_life in half_lives)
        self.clicks, self.transitions = (
            DecayedTable(windows, is_live=settings.tick > 0) for _ in range(2)
        )
        self.tables = {"clicks": self.clicks, "transitions": self.transitions}
        self.names = tuple(
            f"category.{kind}.{name}.{half_life.name}"
            for kind in ("clicks", "next")
            for name in settings.columns
            for half_life in half_lives
        )

    def add(self, growth: Growth, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add new clicks; all clicks are `ages` windows old.

        A click counts under the values of the click before it, which are known beforehand.
        """
        sessions = growth.sessions
        is_known = sessions.items >= N_RESERVED
        is_next = is_known & np.append(False, is_known[:-1]) & growth.is_new
        is_next[sessions.offsets[:-1]] = False
        [clicks] = is_next.nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.clicks.half_lives)
        decay *= sessions.worth_of(clicks)[:, None]
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

    def lookups(self, prefixes: Clicks, now: Moment) -> list[Lookup]:
        """Return the row of each value of the last click, then the rows of value and last item."""
        of_clicks = self._rows(prefixes.categories[prefixes.last])
        of_transitions = of_clicks + prefixes.items[prefixes.last, None]
        ones = np.ones((1, len(self.clicks.half_lives)), np.float32)
        return [
            table.lookup(rows[:, [column]], ones, now)
            for table, rows in ((self.clicks, of_clicks), (self.transitions, of_transitions))
            for column in range(self.n_columns)
        ]

    def expected(self, batch: CandidateBatch) -> Floats32:
        """Clicks are compared with popularity, transitions with the pairs of the last item."""
        assert batch.transitions is not None
        n = len(self.names) // 2
        return np.concatenate([batch.popularity.repeat(n, 2), batch.transitions.repeat(n, 2)], 2)
