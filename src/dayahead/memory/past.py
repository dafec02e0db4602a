"""Memory of pasts: what users click in a session, by the last item they clicked before it."""

import numpy as np

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Floats
from dayahead.memory.evidence import CountMemory
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Lookup, Moment
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import DecayedTable


class PastMemory(CountMemory):
    """Decayed counts by (last item of the past, item of the session), weighted 1 / its position."""

    name = "pasts"
    prior = 3.0
    is_relative = True

    def __init__(self, settings: MemorySettings) -> None:
        half_lives = settings.half_lives("past")
        windows = tuple(half_life.windows for half_life in half_lives)
        self.table = DecayedTable(windows, is_live=settings.tick > 0)
        self.tables = {"counts": self.table}
        self.names = tuple(f"past.next.{half_life.name}" for half_life in half_lives)

    def add(self, growth: Growth, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add new clicks; all clicks are `ages` windows old."""
        sessions = growth.sessions
        rows = sessions.earlier.latest(1)[:, 0].repeat(sessions.lengths)
        positions = np.arange(1, len(rows) + 1) - sessions.offsets[:-1].repeat(sessions.lengths)
        is_known = (rows >= N_RESERVED) & (sessions.items >= N_RESERVED)
        [clicks] = (is_known & growth.is_new).nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.table.half_lives)
        worth = decay / positions[clicks, None] * sessions.worth_of(clicks)[:, None]
        self.table.add(rows[clicks], sessions.items[clicks], worth, elapsed)

    def lookups(self, prefixes: Clicks, now: Moment) -> list[Lookup]:
        """Return the row of the past's last item."""
        ones = np.ones((1, len(self.names)), np.float32)
        return [self.table.lookup(prefixes.earlier.latest(1), ones, now)]
