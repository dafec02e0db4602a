"""Item memory: decayed counts of each item's clicks, and when it was seen."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.table import Floats

ANY, LATER, END = range(3)
CHANNELS = (
    *((ANY, h) for h in (0.125, 0.5, 2.0, 8.0, 32.0)),
    *((LATER, h) for h in (0.25, 1.0, 4.0)),
    *((END, h) for h in (0.5, 4.0)),
)
"""Kind and half-life, in windows: clicks; those after a session's first; a session's last."""
KINDS = ("clicks", "later", "end")
NAMES = tuple(f"item.{KINDS[kind]}.{half_life:g}" for kind, half_life in CHANNELS)
SHORT, RECENT, LATER_RECENT = (
    CHANNELS.index(each) for each in ((ANY, 0.5), (ANY, 2.0), (LATER, 1.0))
)
NEVER = np.iinfo(np.int64).min


class ItemMemory:
    """Decayed counts of clicks, by catalogue index."""

    def __init__(self) -> None:
        self.half_lives = np.array([half_life for _, half_life in CHANNELS])
        self.counts = np.zeros((N_RESERVED, len(CHANNELS)), np.float32)
        """[n, K], n the catalogue's size with the reserved indices."""
        self.first = np.full(N_RESERVED, NEVER)
        """[n] microseconds, NEVER before the first click."""
        self.latest = self.first.copy()

    def grow(self, n_items: int) -> None:
        """Extend the arrays to a catalogue of `n_items`."""
        n_new = n_items + N_RESERVED - len(self.counts)
        self.counts = np.pad(self.counts, ((0, n_new), (0, 0)))
        self.first, self.latest = (
            np.pad(each, (0, n_new), constant_values=NEVER) for each in (self.first, self.latest)
        )

    def add(self, sessions: Clicks, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add sessions whose clicks are `ages` windows old."""
        is_known = sessions.items >= N_RESERVED
        is_later, is_end = np.ones((2, len(is_known)), bool)
        is_later[sessions.offsets[:-1]] = False
        is_end[:] = False
        is_end[sessions.last] = True
        decayed = self.counts * 2.0 ** (-elapsed / self.half_lives)
        for channel, (kind, half_life) in enumerate(CHANNELS):
            is_counted = is_known & (np.ones_like(is_known), is_later, is_end)[kind]
            worth = 2.0 ** (-ages[is_counted] / half_life)
            items = sessions.items[is_counted]
            decayed[:, channel] += np.bincount(items, worth, len(self.counts))
        self.counts = decayed.astype(np.float32)
        self._see(sessions.items[is_known], sessions.times[is_known])

    def _see(self, items: Ints, times: Ints) -> None:
        order = np.lexsort([times, items])
        items, times = items[order], times[order]
        is_first = np.append(True, np.diff(items) != 0)[: len(items)]
        is_last = np.append(np.diff(items) != 0, True)[-len(items) :] if len(items) else is_first
        earliest, held = times[is_first], self.first[items[is_first]]
        self.first[items[is_first]] = np.where(held == NEVER, earliest, np.minimum(held, earliest))
        self.latest[items[is_last]] = np.maximum(self.latest[items[is_last]], times[is_last])

    @property
    def is_seen(self) -> NDArray[np.bool_]:
        """[n] whether an item was ever clicked."""
        return np.asarray(self.first != NEVER)

    def popularity(self) -> Floats:
        """[n] smoothed share of each item in the clicks after a session's first; sums to 1."""
        counts = self.counts[:, LATER_RECENT] + 0.05 * self.counts[:, RECENT].astype(np.float64)
        smoothed = counts + 0.01 * self.is_seen + 1e-6
        smoothed[:N_RESERVED] = 1e-6
        return np.asarray(smoothed / smoothed.sum())

    def state_dict(self) -> dict[str, Tensor]:
        """Counts float32 [n, K], first and latest times int64 [n]."""
        arrays = {"counts": self.counts, "first": self.first, "latest": self.latest}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all counts."""
        self.counts, self.first, self.latest = (
            state[name].numpy().copy() for name in ("counts", "first", "latest")
        )
