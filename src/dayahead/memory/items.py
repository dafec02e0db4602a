"""Item memory: decayed counts of each item's clicks, and when it was seen."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Floats, Floats32, Ints
from dayahead.memory.evidence import CandidateBatch, Memory, channels, of
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Moment
from dayahead.memory.settings import MemorySettings

NEVER = np.iinfo(np.int64).min
FIRST_WEIGHT = 0.05
"""Weight of a click that may be a session's first in the share of future clicks."""
DOUBT = 20.0
"""Clicks within a half-life that give its shares half of their weight."""
MINUTE = 60_000_000
KINDS = ("clicks", "later", "end")
"""What is counted: an item's clicks; those after a session's first; a session's last."""


class ItemFeatures(NamedTuple):
    """Features of items that are the same for every prefix of a window."""

    logs: Floats32
    """[n, I] logarithms of an item's counts, its age and the time since its last click."""
    popularity: Floats32
    """[n] expected share of each item in future clicks."""
    is_seen: NDArray[np.bool_]
    """[n]"""


class ItemMemory(Memory):
    """Decayed counts of clicks, by catalogue index.

    The channels are of KINDS.
    """

    name = "items"

    def __init__(self, settings: MemorySettings) -> None:
        self.channels = channels(**{kind: settings.half_lives(f"item_{kind}") for kind in KINDS})
        of_counts = (f"item.{channel.name}" for channel in self.channels)
        self.names = (*of_counts, "item.age", "item.unseen")
        self.half_lives = np.array([channel.half_life.windows for channel in self.channels])
        self.counts = np.zeros((N_RESERVED, len(self.channels)), np.float32)
        """[n, K] decayed counts; n is the catalogue's size with the reserved indices."""
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

    def add(self, growth: Growth, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add new clicks; all clicks are `ages` windows old."""
        sessions = growth.sessions
        is_known = sessions.items >= N_RESERVED
        is_new = is_known & growth.is_new
        is_later = is_new.copy()
        is_later[sessions.offsets[:-1]] = False
        is_counted = {"clicks": is_new, "later": is_later, "end": is_known & growth.is_end}
        clicked, places = np.unique(sessions.items, return_inverse=True)
        new = np.zeros((len(clicked), len(self.channels)))
        for channel, (kind, half_life) in enumerate(self.channels):
            [clicks] = is_counted[kind].nonzero()
            worth = 2.0 ** (-ages[clicks] / half_life.windows) * sessions.worth_of(clicks)
            new[:, channel] = np.bincount(places[clicks], worth, len(clicked))
        # In float64 until all is added, where something is; the counts are kept in float32.
        decays = 2.0 ** (-elapsed / self.half_lives)
        counts = np.multiply(self.counts, decays, out=self.counts.copy(), casting="same_kind")
        counts[clicked] = self.counts[clicked] * decays + new
        self.counts = counts
        self._see(sessions.items[is_new], sessions.times[is_new])

    def _see(self, items: Ints, times: Ints) -> None:
        first, latest = self.first.copy(), self.latest.copy()  # a state may share the old ones
        # NEVER is the lowest integer, so a minimum would keep it as the time of the first click.
        first[items[~self.is_seen[items]]] = np.iinfo(np.int64).max
        np.minimum.at(first, items, times)
        np.maximum.at(latest, items, times)
        self.first, self.latest = first, latest

    @property
    def is_seen(self) -> NDArray[np.bool_]:
        """[n] whether an item was ever clicked."""
        return np.asarray(self.first != NEVER)

    def _popularity(self, counts: Floats32, n_old: int) -> Floats:
        """[n] smoothed share of each item in the clicks after a session's first; sums to 1.

        The mean of the shares within all half-lives, those that hold few clicks weighing less. New
        items without a click, which have no share yet, are no part of the sum.
        """
        later, clicks = (of(self.channels, kind) for kind in ("later", "clicks"))
        # einsum converts some rows at a time: at every tick a copy in float64 would take longer.
        sums = np.einsum("nk->k", counts, dtype=np.float64)
        totals = sums[later] + FIRST_WEIGHT * sums[clicks].mean()
        # Above 0 for every item: features take the logarithm of shares.
        smoothing = 0.01 * self.is_seen + 1e-6
        is_part = self.is_seen
        is_part[: N_RESERVED + n_old] = True
        weights = (totals + 1e-6) / (totals + DOUBT)
        weights /= weights.sum() * (totals + smoothing[is_part].sum())
        of_channels = np.zeros(len(sums))
        of_channels[later] = weights
        of_channels[clicks] = FIRST_WEIGHT / len(clicks) * weights.sum()
        return np.asarray(np.einsum("nk,k->n", counts, of_channels) + smoothing * weights.sum())

    def known(self, now: Moment, unit: int, n_old: int) -> ItemFeatures:
        """Return the features at a time.

        Args:
            now: the time.
            unit: a window's length in microseconds.
            n_old: items that are not new.
        """
        end, decay = now.time, 2.0 ** (-now.since / self.half_lives)
        counts = self.counts * decay.astype(np.float32)
        times = np.stack([self.first, self.latest], axis=1)
        ages = np.maximum(end - np.where(times == NEVER, end, times), 0) / unit
        # The offsets keep logarithms finite: counts and ages may be 0. In news a minute matters.
        values = np.concatenate([counts + 0.1, ages + MINUTE / unit], axis=1, dtype=np.float32)
        popularity = self._popularity(counts, n_old).astype(np.float32)
        return ItemFeatures(np.log(values), popularity, self.is_seen)

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the features of the candidates [B, C, I]."""
        return batch.of_items

    def state_dict(self) -> dict[str, Tensor]:
        """Counts float32 [n, K], first and latest times int64 [n]."""
        arrays = {"counts": self.counts, "first": self.first, "latest": self.latest}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all counts."""
        self.counts, self.first, self.latest = (
            state[name].numpy().copy() for name in ("counts", "first", "latest")
        )
