"""Pair memory: decayed counts of how often item b followed, or occurred with, item a."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.core.ragged import step_of_each
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.table import Columns, DecayedTable, Floats, Sums

KINDS = ("next", "first", "end", "forward", "backward")
"""What a channel counts of items a -> b:

next      b is the click after a
first     as next, and a is the session's first click
end       as next, and b is the session's last click
forward   b comes after a, with weight 1 / distance
backward  b comes before a, with weight 1 / distance
"""
CHANNELS = (
    *(("next", half_life) for half_life in (0.25, 1.0, 4.0, 16.0)),
    *(("first", half_life) for half_life in (1.0, 4.0)),
    *(("end", half_life) for half_life in (1.0, 4.0)),
    *(("forward", half_life) for half_life in (1.0, 4.0, 16.0)),
    *(("backward", half_life) for half_life in (1.0, 4.0, 16.0)),
)
"""Kind and half-life, in windows."""
NAMES = tuple(f"pair.{kind}.{half_life:g}" for kind, half_life in CHANNELS)
REACH = 20
"""Largest distance of a pair, in clicks, and the number of a prefix's last clicks that are read."""
FADE = 0.5
"""Weight of each click of a prefix, relative to the click after it."""
_KIND_OF = np.array([KINDS.index(kind) for kind, _ in CHANNELS])
_IS_BACKWARD = np.array([kind == "backward" for kind, _ in CHANNELS])
_IS_MET = np.array([kind in {"forward", "backward"} for kind, _ in CHANNELS])
WEIGHTS = np.where(_IS_MET, FADE ** np.arange(REACH)[:, None], np.eye(REACH, 1)).astype(np.float32)
"""[REACH, K] weights of a prefix's clicks, the last one first: forward and backward are summed over
the prefix, the other kinds are read at its last click."""


class PairMemory:
    """Decayed counts of item pairs, by (a, b)."""

    def __init__(self) -> None:
        self.table = DecayedTable(tuple(half_life for _, half_life in CHANNELS))

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        before, after, kinds = _pairs(sessions)
        worth = kinds[:, _KIND_OF] * 2.0 ** (-ages[after, None] / self.table.half_lives)
        rows, columns = sessions.items[before], sessions.items[after]
        self.table.add(
            # One table for both: backward channels are under (b, a), all others under (a, b).
            np.append(rows, columns),
            np.append(columns, rows),
            np.concatenate([worth * ~_IS_BACKWARD, worth * _IS_BACKWARD]),
            elapsed,
        )

    def evidence(self, prefixes: Clicks, candidates: Columns, n: int) -> Sums:
        """Read the pairs from each prefix to its candidates [B, C], below `n`; 0 is none."""
        rows = prefixes.latest(REACH)
        return self.table.read(rows, WEIGHTS[: rows.shape[1]], candidates, n)

    def state_dict(self) -> dict[str, Tensor]:
        """The cells of the table."""
        return self.table.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all pairs."""
        self.table.load_state_dict(state)


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
