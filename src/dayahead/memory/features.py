"""Named features of candidates: logarithms of what each memory expects."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dayahead.memory import items, neighbours, pairs
from dayahead.memory.clicks import Clicks, Ints
from dayahead.memory.compiled import compiled
from dayahead.memory.items import NEVER, ItemMemory
from dayahead.memory.neighbours import Neighbourhood
from dayahead.memory.pairs import CHANNELS, NEXT, PairEvidence
from dayahead.memory.table import Floats

ITEM_NAMES = (*items.NAMES, "item.age", "item.unseen")
OWN_NAMES = ("own.is_known", "own.position", "own.is_last")
NETWORK = "network.log_softmax"
DOUBTS = np.array([1.0 if half_life < 1 else 3.0 for _, half_life in CHANNELS], np.float32)
"""Expected clicks that each channel of pairs is smoothed with."""
NEIGHBOUR_DOUBT = 1.0
CATEGORY_DOUBT = 10.0
BASE = CHANNELS.index((NEXT, 4.0))
"""The channel that the transitions of a category are compared with."""


def feature_names(columns: tuple[str, ...], with_network: bool) -> tuple[str, ...]:
    """Name the features of a model with these categorical columns, in order."""
    categories = [f"category.{kind}.{name}" for kind in ("clicks", "next") for name in columns]
    network = [NETWORK] * with_network
    return *pairs.NAMES, *neighbours.NAMES, *ITEM_NAMES, *OWN_NAMES, *categories, *network


class ItemFeatures(NamedTuple):
    """What holds of an item for every prefix of a window."""

    logs: NDArray[np.float32]
    """[n, I] the features `ITEM_NAMES`."""
    popularity: NDArray[np.float32]
    """[n] share in the clicks to come."""

    @classmethod
    def of(cls, memory: ItemMemory, end: int, unit: int) -> "ItemFeatures":
        """Read the memory at the time `end`, in microseconds; `unit` is a window's length."""
        ages = [
            np.where(times == NEVER, 0.0, np.maximum(end - times, 0) / unit)
            for times in (memory.first, memory.latest)
        ]
        columns = [memory.counts + 0.1, *(each[:, None] + 0.02 for each in ages)]
        logs = np.log(np.concatenate(columns, axis=1, dtype=np.float32))
        return cls(logs, memory.popularity().astype(np.float32))


class CategoryEvidence(NamedTuple):
    """What the categories of a prefix's last click say of its candidates."""

    counts: NDArray[np.float32]
    """[B, C, 2G]"""
    masses: NDArray[np.float32]
    """[B, 2G]"""


def candidate_features(
    prefixes: Clicks,
    candidates: NDArray[np.int32],
    evidence: tuple[PairEvidence, Neighbourhood, CategoryEvidence],
    known: ItemFeatures,
    n_features: int,
) -> NDArray[np.float32]:
    """Return features [B, C, F]; those past the memories' own, of a network, are left 0."""
    arrays = prefixes.items, prefixes.offsets, candidates
    doubts = DOUBTS, NEIGHBOUR_DOUBT, CATEGORY_DOUBT
    features = np.zeros((*candidates.shape, n_features), np.float32)
    _fill(features, *arrays, *evidence, known, doubts)
    return features


@compiled
def _fill(  # noqa: C901, PLR0912, PLR0913, PLR0914, PLR0915, PLR0917
    features: NDArray[np.float32],
    prefix_items: Ints,
    prefix_offsets: Ints,
    candidates: NDArray[np.int32],
    pair: PairEvidence,
    near: Neighbourhood,
    category: CategoryEvidence,
    known: ItemFeatures,
    doubts: tuple[NDArray[np.float32], float, float],
) -> None:
    one = np.float32(1.0)
    pair_doubts, near_doubt, category_doubt = doubts[0], np.float32(doubts[1]), np.float32(doubts[2])
    n_pairs, n_items, n_categories = len(pair_doubts), known.logs.shape[1], category.masses.shape[1]
    near_sums = np.zeros((len(known.popularity), 2), np.float32)
    log_popularity = np.log(known.popularity)
    for b in range(len(candidates)):
        base_masses = np.log(pair_doubts / (pair.masses[b] + pair_doubts))
        near_mass = np.zeros(2, np.float32)
        for i in range(near.offsets[b], near.offsets[b + 1]):
            near_sums[near.items[i]] = near.values[i]
            near_mass += near.values[i]
        for c in range(candidates.shape[1]):
            item = candidates[b, c]
            if item == 0:
                continue
            out = features[b, c]
            share, log_share = known.popularity[item], log_popularity[item]
            for k in range(n_pairs):
                out[k] = log_share + base_masses[k]
                if pair.counts[b, c, k] > 0:
                    out[k] += np.log(one + pair.counts[b, c, k] / (pair_doubts[k] * share))
            at = n_pairs
            for k in range(2):
                smoothed = near_sums[item, k] + near_doubt * share
                out[at + k] = np.log(smoothed / (near_mass[k] + near_doubt))
            at += 2
            for k in range(n_items):
                out[at + k] = known.logs[item, k]
            at += n_items
            last = prefix_offsets[b + 1] - 1
            for i in range(prefix_offsets[b], last + 1):
                if prefix_items[i] == item:
                    out[at] = one
                    out[at + 1] = one / np.float32(last + 1 - i)
                    out[at + 2] = one if i == last else np.float32(0.0)
            at += 3
            for k in range(n_categories):
                expected = share if k < n_categories // 2 else np.exp(out[BASE])
                ratio = category.counts[b, c, k] / expected + category_doubt
                out[at + k] = np.log(ratio / (category.masses[b, k] + category_doubt))
        for i in range(near.offsets[b], near.offsets[b + 1]):
            near_sums[near.items[i]] = 0
