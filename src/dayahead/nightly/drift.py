"""How much a new window's data differ from the windows before it."""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon

from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.windows.folder import Window, WindowFolder

MIN_BEFORE = 3
"""With fewer windows before it, a new one is not compared with them."""
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """A share from 0 to 1 of a window, beside the largest of the windows before it."""

    value: float
    usual: float

    @property
    def excess(self) -> float:
        """How far it is from usual to 1: 0 or less as usual, 1 as different as can be."""
        return (self.value - self.usual) / (1 - self.usual) if self.usual < 1 else 0.0


@dataclass(frozen=True)
class Drift:
    """A window beside those before it."""

    session_ratio: float
    """Its sessions per session of the median window before it."""
    new_items: Change
    """Share of its events on items that no earlier window has."""
    popularity: Change
    """Jensen-Shannon divergence (base 2) of its events by item from those before it."""
    growth: float
    """Items that it adds, per item of the catalogue before it."""


class Drifts:
    """Compares windows with those before them.

    Args:
        folder: of the windows.
        left_out: windows that others are not compared with, since their data were refused.
        most: number of windows that one is compared with.
    """

    def __init__(self, folder: WindowFolder, left_out: Collection[str], most: int) -> None:
        self.folder = folder
        self.left_out = left_out
        self.most = most
        self._counts: dict[str, Counts] = {}

    def of(self, window: Window) -> Drift | None:
        """Compare a window with those before it; None where they are too few.

        At least one of those has to be comparable itself, for news change more than shoes.
        """
        before = self.before(window)
        usual = [each for each in before if len(self.before(each)) >= MIN_BEFORE]
        if len(before) < MIN_BEFORE or not usual:
            return None
        sessions = {entry.window: entry.sessions for entry in self.folder.manifest.windows}
        n_before, n_now = self._n_items(window)
        return Drift(
            session_ratio=sessions[window.name] / median(sessions[each.name] for each in before),
            new_items=Change(self._new_items(window), max(map(self._new_items, usual))),
            popularity=Change(self._popularity(window), max(map(self._popularity, usual))),
            growth=(n_now - n_before) / n_before,
        )

    def before(self, window: Window) -> list[Window]:
        """Return the windows that one is compared with, in order."""
        earlier = self.folder.windows[: window.position]
        return [each for each in earlier if each.name not in self.left_out][-self.most :]

    def _new_items(self, window: Window) -> float:
        counts, (n_before, _) = self._counts_of(window), self._n_items(window)
        return float(counts[N_RESERVED + n_before :].sum() / counts.sum())

    def _popularity(self, window: Window) -> float:
        usual = np.sum([self._counts_of(each) for each in self.before(window)], axis=0)
        return divergence(self._counts_of(window), usual)

    def _n_items(self, window: Window) -> tuple[int, int]:
        """Return the size of the catalogue before a window, and with it."""
        known = [
            self.folder.n_known(ITEM_ID, self.folder.windows[position])
            for position in (window.position - 1, window.position)
        ]
        return known[0], known[1]

    def _counts_of(self, window: Window) -> Counts:
        if window.name not in self._counts:
            self._counts[window.name] = self.folder.item_counts(window, "train")
        return self._counts[window.name]


def divergence(one: Counts, other: Counts) -> float:
    """Return the Jensen-Shannon divergence of two counts by item: 0 alike, 1 no item shared."""
    return float(jensenshannon(one, other, base=2) ** 2)
