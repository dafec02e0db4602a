"""Memory of pasts: what users click in a session, by the last item they clicked before it."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks
from dayahead.memory.table import Columns, DecayedTable, Floats, Sums

HALF_LIVES = (4.0, 16.0)
"""Half-lives of the counts, in windows."""
NAMES = tuple(f"past.next.{half_life:g}" for half_life in HALF_LIVES)


class PastMemory:
    """Decayed counts by (last item of the past, item of the session), weighted 1 / its position."""

    def __init__(self) -> None:
        self.table = DecayedTable(HALF_LIVES)

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        rows = sessions.earlier.latest(1)[:, 0].repeat(sessions.lengths)
        positions = np.arange(1, len(rows) + 1) - sessions.offsets[:-1].repeat(sessions.lengths)
        [clicks] = ((rows >= N_RESERVED) & (sessions.items >= N_RESERVED)).nonzero()
        decay = 2.0 ** (-ages[clicks, None] / self.table.half_lives)
        worth = decay / positions[clicks, None]
        self.table.add(rows[clicks], sessions.items[clicks], worth, elapsed)

    def evidence(self, prefixes: Clicks, candidates: Columns, n: int) -> Sums:
        """Read the counts of each prefix's candidates [B, C], below `n`; 0 is none."""
        rows, ones = prefixes.earlier.latest(1), np.ones((1, len(HALF_LIVES)), np.float32)
        return self.table.read(rows, ones, candidates, n)

    def state_dict(self) -> dict[str, Tensor]:
        """The cells of the table."""
        return self.table.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all counts."""
        self.table.load_state_dict(state)
