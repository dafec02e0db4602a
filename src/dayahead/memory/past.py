"""Memory of pasts: what users click in a session, by the last item they clicked before it."""

import numpy as np

from dayahead.config.memory import MemoryConfig
from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks
from dayahead.memory.evidence import CountMemory
from dayahead.memory.table import DecayedTable, Floats, Lookup


class PastMemory(CountMemory):
    """Decayed counts by (last item of the past, item of the session), weighted 1 / its position."""

    name = "pasts"
    prior = 3.0
    is_relative = True

    def __init__(self, config: MemoryConfig) -> None:
        self.table = DecayedTable(config.past_half_lives)
        self.tables = {"counts": self.table}
        self.names = tuple(f"past.next.{half_life:g}" for half_life in config.past_half_lives)

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        rows = sessions.earlier.latest(1)[:, 0].repeat(sessions.lengths)
        positions = np.arange(1, len(rows) + 1) - sessions.offsets[:-1].repeat(sessions.lengths)
        [clicks] = ((rows >= N_RESERVED) & (sessions.items >= N_RESERVED)).nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.table.half_lives)
        worth = decay / positions[clicks, None]
        self.table.add(rows[clicks], sessions.items[clicks], worth, elapsed)

    def lookups(self, prefixes: Clicks, _end: int) -> list[Lookup]:
        """Return the row of the past's last item."""
        ones = np.ones((1, len(self.names)), np.float32)
        return [Lookup(self.table.cells, prefixes.earlier.latest(1), ones)]
