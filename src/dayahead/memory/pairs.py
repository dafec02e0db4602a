"""Pair memory: how often item b followed or met item a, in channels that decay."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.table import Cells, DecayedTable, Floats

NEXT, FIRST, END, FORWARD, BACKWARD = range(5)
CHANNELS = (
    *((NEXT, h) for h in (0.25, 1.0, 4.0, 16.0)),
    *((FIRST, h) for h in (1.0, 4.0)),
    *((END, h) for h in (1.0, 4.0)),
    *((FORWARD, h) for h in (1.0, 4.0, 16.0)),
    *((BACKWARD, h) for h in (1.0, 4.0, 16.0)),
)
"""Kind and half-life, in windows, of each channel:

next      b is the click after a
first     so, and a is the session's first click
end       so, and b is the session's last click
forward   b comes after a, worth 1 / distance
backward  b comes before a, worth 1 / distance
"""
KINDS = ("next", "first", "end", "forward", "backward")
NAMES = tuple(f"pair.{KINDS[kind]}.{half_life:g}" for kind, half_life in CHANNELS)
_KIND_OF = np.array([kind for kind, _ in CHANNELS])
N_AT_LAST = int((_KIND_OF < FORWARD).sum())
"""The first channels are read at the last item alone, the others summed over the prefix."""
REACH = 20
"""Clicks farther apart are no pair; of a prefix, as many clicks are read."""
FADE = 0.5
"""Weight of each click of a prefix, in parts of the one after it."""


class PairEvidence(NamedTuple):
    """What the pairs of a prefix say of its candidates."""

    counts: NDArray[np.float32]
    """[B, C, K]"""
    masses: NDArray[np.float32]
    """[B, K] the same over all items."""


class PairMemory:
    """Decayed counts of item pairs."""

    def __init__(self) -> None:
        self.table = DecayedTable(tuple(half_life for _, half_life in CHANNELS))

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        items, offsets = sessions.items, sessions.offsets
        pairs = _pairs(items, offsets, ages, _KIND_OF, self.table.half_lives)
        self.table.add(*pairs, elapsed)

    def evidence(self, prefixes: Clicks, candidates: NDArray[np.int32], n: int) -> PairEvidence:
        """Read the pairs from each prefix to its candidates, catalogue indices below `n`."""
        arrays = prefixes.items, prefixes.offsets, candidates
        return PairEvidence(*_evidence(self.table.cells, *arrays, N_AT_LAST, n))


@compiled
def _pairs(
    items: Ints, offsets: Ints, ages: Floats, kinds: Ints, half_lives: Floats
) -> tuple[Ints, Ints, Floats]:
    """List each ordered pair of clicks of a session, and its worth [M, K] in each channel."""
    size = 0
    for r in range(len(offsets) - 1):
        for i in range(offsets[r], offsets[r + 1]):
            size += 2 * (min(offsets[r + 1], i + REACH + 1) - i - 1)
    rows, columns = np.zeros(size, np.int64), np.zeros(size, np.int64)
    values = np.zeros((size, len(kinds)))
    end = 0
    for r in range(len(offsets) - 1):
        for i in range(offsets[r], offsets[r + 1]):
            for j in range(i + 1, min(offsets[r + 1], i + REACH + 1)):
                if items[i] < 2 or items[j] < 2:  # noqa: PLR2004
                    continue
                rows[end], columns[end] = items[i], items[j]
                rows[end + 1], columns[end + 1] = items[j], items[i]
                for c in range(len(kinds)):
                    worth = 2.0 ** (-ages[j] / half_lives[c])
                    if kinds[c] >= FORWARD:
                        values[end + (kinds[c] == BACKWARD), c] = worth / (j - i)
                    elif j == i + 1 and (
                        kinds[c] == NEXT
                        or (kinds[c] == FIRST and i == offsets[r])
                        or (kinds[c] == END and j == offsets[r + 1] - 1)
                    ):
                        values[end, c] = worth
                end += 2
    return rows[:end], columns[:end], values[:end]


@compiled
def _evidence(
    cells: Cells, items: Ints, offsets: Ints, candidates: NDArray[np.int32], n_at_last: int, n: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    n_channels = cells.values.shape[1]
    counts = np.zeros((*candidates.shape, n_channels), np.float32)
    masses = np.zeros((len(candidates), n_channels), np.float32)
    slots = np.full(n, -1, np.int32)
    for b in range(len(candidates)):
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = c
        slots[0] = -1
        weight = np.float32(1.0)
        for i in range(offsets[b + 1] - 1, max(offsets[b], offsets[b + 1] - REACH) - 1, -1):
            start = 0 if i == offsets[b + 1] - 1 else n_at_last
            row = np.searchsorted(cells.rows, items[i])
            if row < len(cells.rows) and cells.rows[row] == items[i]:
                for k in range(start, n_channels):
                    masses[b, k] += weight * cells.masses[row, k]
                for cell in range(cells.offsets[row], cells.offsets[row + 1]):
                    slot = slots[cells.columns[cell]]
                    if slot >= 0:
                        for k in range(start, n_channels):
                            counts[b, slot, k] += weight * cells.values[cell, k]
            weight *= np.float32(FADE)
        for c in range(candidates.shape[1]):
            slots[candidates[b, c]] = -1
    return counts, masses
