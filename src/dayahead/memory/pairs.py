"""Pair memory: decayed counts of how often item b followed, or occurred with, item a."""

from collections.abc import Sequence

import numpy as np

from dayahead.config.memory import MemoryConfig
from dayahead.core.columns import N_RESERVED
from dayahead.core.ragged import step_of_each
from dayahead.memory.candidates import Proposal
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.evidence import CountMemory, channels, log_share, nearest
from dayahead.memory.table import DecayedTable, Floats, Floats32, Lookup, Sums

KINDS = ("next", "first", "end", "forward", "backward")
"""What a channel counts of items a -> b:

next      b is the click after a
first     as next, and a is the session's first click
end       as next, and b is the session's last click
forward   b comes after a, with weight 1 / distance
backward  b comes before a, with weight 1 / distance
"""
REACH = 20
"""Largest distance of a pair, in clicks, and the number of a prefix's last clicks that are read."""
FADE = 0.5
"""Weight of each click of a prefix, relative to the click after it."""
SHARES = {
    ("next", 1.0): 0.2,
    ("next", 4.0): 0.2,
    ("next", 16.0): 0.1,
    ("forward", 4.0): 0.15,
    ("backward", 4.0): 0.05,
}
"""Weight of each channel, or the nearest one, in the mixture that chooses candidates."""
DOUBT = 3.0
"""Prior count of a row in this mixture: a row with a total of this gets half of its share."""


class PairMemory(CountMemory):
    """Decayed counts of item pairs, by (a, b).

    Forward and backward are summed over a prefix; the other kinds are read at its last click.
    """

    name = "pairs"
    is_share = True

    def __init__(self, config: MemoryConfig) -> None:
        self.channels = channels(
            next=config.pair_next_half_lives,
            first=config.pair_first_half_lives,
            end=config.pair_end_half_lives,
            forward=config.pair_forward_half_lives,
            backward=config.pair_backward_half_lives,
        )
        self.names = tuple(f"pair.{kind}.{half_life:g}" for kind, half_life in self.channels)
        self.n_masses = len(self.names)
        self.table = DecayedTable(tuple(half_life for _, half_life in self.channels))
        self.tables = {"counts": self.table}
        self.prior: Floats32 = np.array(
            [1 if half_life < 1 else 3 for _, half_life in self.channels], "f4"
        )
        self.base = nearest(self.channels, "next", 4.0)
        """The channel with which the transitions of a category are compared."""
        kinds = [kind for kind, _ in self.channels]
        self._kind_of = np.array([KINDS.index(kind) for kind in kinds])
        self._is_backward = np.array([kind == "backward" for kind in kinds])
        is_summed = np.isin(kinds, ["forward", "backward"])
        weights = np.where(is_summed, FADE ** np.arange(REACH)[:, None], np.eye(REACH, 1))
        self._weights: Floats32 = weights.astype(np.float32)
        """[REACH, K] weights of a prefix's clicks, the last one first."""
        self._mixed = np.array([nearest(self.channels, *channel) for channel in SHARES])
        shares = self._weights[:, self._mixed] * np.array(list(SHARES.values()), np.float32)
        self._mixed_weights = np.ascontiguousarray(shares)

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        before, after, kinds = _pairs(sessions)
        worth = kinds[:, self._kind_of] * 2.0 ** (-ages[after, None] / self.table.half_lives)
        rows, columns = sessions.items[before], sessions.items[after]
        self.table.add(
            # One table for both: backward channels are under (b, a), all others under (a, b).
            np.append(rows, columns),
            np.append(columns, rows),
            np.concatenate([worth * ~self._is_backward, worth * self._is_backward]),
            elapsed,
        )

    def lookups(self, prefixes: Clicks, _end: int) -> list[Lookup]:
        """Return the rows of the last clicks."""
        rows = prefixes.latest(REACH)
        return [Lookup(self.table.cells, rows, self._weights[: rows.shape[1]])]

    def propose(self, lookups: Sequence[Lookup]) -> list[Proposal]:
        """Propose what followed, preceded and came later."""
        return [
            Proposal(
                each.cells,
                each.rows,
                self._mixed_weights[: each.rows.shape[1]],
                self._mixed,
                DOUBT,
            )
            for each in lookups
        ]

    def after_last(self, sums: Sums) -> Sums:
        """Return the sums of one channel: the clicks after the last item."""
        return Sums(sums.counts[..., [self.base]], sums.masses[:, [self.base]])

    def transitions(self, after_last: Sums, popularity: Floats32) -> Floats32:
        """Return the share [B, C, 1] of each candidate in the clicks after the last item."""
        shares: Floats32 = np.exp(log_share(after_last, popularity, self.prior[[self.base]]))
        return shares


def _pairs(sessions: Clicks) -> tuple[Ints, Ints, Floats]:
    """Return the earlier and the later click of each pair, and its weight [P, kinds]."""
    clicks = np.arange(len(sessions.items))
    n_after = np.minimum(sessions.offsets[1:].repeat(sessions.lengths) - clicks - 1, REACH)
    before, distances = clicks.repeat(n_after), step_of_each(n_after) + 1
    after = before + distances
    is_known = (sessions.items[before] >= N_RESERVED) & (sessions.items[after] >= N_RESERVED)
    before, after, distances = before[is_known], after[is_known], distances[is_known]
    is_next = distances == 1
    is_first = is_next & np.isin(before, sessions.offsets[:-1])
    is_end = is_next & np.isin(after, sessions.last)
    met = 1 / distances
    return before, after, np.stack([is_next, is_first, is_end, met, met], axis=1)
