"""Metrics of the lists that a model would show: functions of how often an item is shown where.

All of them are defined for lists of any length k; every list of a window has the same length.
Where RecTools has the metric, the definition is its own, with the train sessions of the windows so
far as its users (a session has an item once).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dayahead.config.metric_names import OF_LISTS

Ints = NDArray[np.integer[Any]]
Figures = Mapping[str, float]
RANGES: Final = {
    "novelty": (0.0, inf),
    **dict.fromkeys(("coverage", "gini", "popularity", "new", "own"), (0.0, 1.0)),
}
"""Smallest and largest value of each metric: no interval goes beyond."""


@dataclass(frozen=True)
class Shown:
    """What the lists of a window show, summed over the lists."""

    n_lists: int
    items: Ints
    """[N] catalogue indices of the items in any list, ascending."""
    counts: Ints
    """[N, K] number of lists that show the item at each position, the best first."""
    own: Ints
    """[K] number of lists whose item at the position is in the session before the target."""

    @property
    def length(self) -> int:
        """K, the number of items in each list."""
        return int(self.counts.shape[1])

    def up_to(self, k: int) -> Ints:
        """Return the number of lists that show each item at their first k positions, [N]."""
        return np.asarray(self.counts[:, :k].sum(axis=1, dtype=np.int64))


@dataclass(frozen=True)
class KnownItems:
    """What is known of items when the lists are made: the train sessions so far."""

    n_sessions: int
    sessions: Ints
    """[I] number of sessions with each catalogue index."""
    is_new: NDArray[np.bool_]
    """[I] whether no session before the newest window has the item."""


def list_figures(shown: Shown, k: int, known: KnownItems, n_items: int) -> Figures:
    """Return the metrics of the first k items of each list.

    Args:
        shown: lists of one item or more, at least one of them.
        k: length of the lists; where they are shorter, their own.
        known: items as of the last fit.
        n_items: items that a list could show: the candidates, and whatever else is shown.
    """
    counts, k = shown.up_to(k), min(k, shown.length)
    sessions = known.sessions[shown.items]
    return {
        "coverage": coverage(counts, n_items),
        "gini": gini(counts, n_items),
        "novelty": novelty(counts, sessions, known.n_sessions),
        "popularity": popularity(counts, sessions, int(known.sessions.sum())),
        "new": float(counts[known.is_new[shown.items]].sum() / counts.sum()),
        "own": float(shown.own[:k].sum() / counts.sum()),
    }


def coverage(counts: Ints, n_items: int) -> float:
    """Return the share of items in any list, from 0 to 1: of a catalogue, how much is shown.

    Herlocker et al. 2004; `CatalogCoverage(normalize=True)` of RecTools.

    Args:
        counts: [N] number of lists that show an item, above 0 for those that are shown.
        n_items: items that a list could show.
    """
    return int(np.count_nonzero(counts)) / n_items


def gini(counts: Ints, n_items: int) -> float:
    """Return the Gini index of exposure, from 0 (all items equally often) to 1 (only one item).

    With n items, of which the i-th least shown is in x_i lists, it is
    sum_i (2 i - n - 1) x_i / (n sum_i x_i), at most 1 - 1 / n. Items in no list count as 0. As in
    Fleder and Hosanagar 2009. RecTools has no Gini index.
    """
    found = np.sort(counts[counts > 0]).astype(np.float64)
    places = np.arange(n_items - len(found) + 1, n_items + 1)
    return float(((2 * places - n_items - 1) * found).sum() / (n_items * found.sum()))


def novelty(counts: Ints, sessions: Ints, n_sessions: int) -> float:
    """Return the mean self-information of the items shown, in bits, from 0 to log2(n_sessions).

    That of an item is -log2 of the share of sessions that have it; an item in no session counts as
    in one, and 0 sessions as 1. Zhou et al. 2010; `MeanInvUserFreq` of RecTools, with sessions as
    its users.

    Args:
        counts: [N] number of lists that show an item.
        sessions: [N] number of earlier sessions with the item.
        n_sessions: number of these sessions.
    """
    bits = -np.log2(np.maximum(sessions, 1) / max(n_sessions, 1))
    return float((counts * bits).sum() / counts.sum())


def popularity(counts: Ints, sessions: Ints, n_pairs: int) -> float:
    """Return the mean popularity of the items shown, from 0 to 1.

    That of an item is its share of all pairs of an earlier session and an item in it; 0 where there
    are none. Yin et al. 2012; `AvgRecPopularity(normalize=True)` of RecTools.

    Args:
        counts: [N] number of lists that show an item.
        sessions: [N] number of earlier sessions with the item.
        n_pairs: the sum of that number over all items.
    """
    return float((counts * (sessions / max(n_pairs, 1))).sum() / counts.sum())


def figure_names(cutoffs: Iterable[int], length: int) -> list[str]:
    """Return the names of all figures of lists of a length: coverage_at_10, ..., own_at_20."""
    ks = [k for k in sorted(set(cutoffs)) if k <= length]
    return [f"{name}_at_{k}" for name in OF_LISTS for k in ks]
