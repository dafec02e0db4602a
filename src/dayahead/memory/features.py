"""Named features of candidates: logarithms of the probability that each memory gives them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dayahead.memory import items, neighbours, pairs, past
from dayahead.memory.clicks import Clicks
from dayahead.memory.items import NEVER, ItemMemory
from dayahead.memory.table import Columns, Floats32, Sums

ITEM_NAMES = (*items.NAMES, "item.age", "item.unseen")
"""Features of an item: logarithms of its counts, its age and the time since its last click."""
_POSITIONS = ("is_known", "position", "is_last")
OWN_NAMES = tuple(f"own.{name}" for name in _POSITIONS)
"""Whether a candidate is in the prefix; 1 / its position from the end; whether it is the last."""
IS_OWN = OWN_NAMES[0]
PAST_NAMES = (*(f"past.{name}" for name in _POSITIONS), *past.NAMES)
"""The same for the user's past, and the share of the candidate after the past's last item."""
NETWORK = "network.log_softmax"
OF_SHARES = ("pair.", "neighbours.", "network.")
"""Prefixes of the names of features that are log-probabilities."""
PAIR_DOUBTS = np.array([1 if h < 1 else 3 for _, h in pairs.CHANNELS], np.float32)
"""Prior count of each pair channel's shares (see `candidate_features`)."""
NEIGHBOUR_DOUBT = 1.0
CATEGORY_DOUBT = 10.0
PAST_DOUBT = 3.0
BASE = pairs.CHANNELS.index(("next", 4.0))
"""The channel that the transitions of a category are compared with."""


def feature_names(
    columns: tuple[str, ...], with_network: bool, with_past: bool = False
) -> tuple[str, ...]:
    """Name the features of a model with these categorical columns, in order."""
    categories = [f"category.{kind}.{name}" for kind in ("clicks", "next") for name in columns]
    more = [*(PAST_NAMES if with_past else ()), *([NETWORK] * with_network)]
    return *pairs.NAMES, *neighbours.NAMES, *categories, *ITEM_NAMES, *OWN_NAMES, *more


class ItemFeatures(NamedTuple):
    """Features of items that are the same for every prefix of a window."""

    logs: Floats32
    """[n, I] the features `ITEM_NAMES`."""
    popularity: Floats32
    """[n] expected share of each item in future clicks."""
    is_seen: NDArray[np.bool_]
    """[n]"""

    @classmethod
    def of(cls, memory: ItemMemory, end: int, unit: int) -> "ItemFeatures":
        """Read the memory at the time `end`, in microseconds; `unit` is a window's length."""
        times = np.stack([memory.first, memory.latest], axis=1)
        ages = np.maximum(end - np.where(times == NEVER, end, times), 0) / unit
        # The offsets keep logarithms finite: counts and ages may be 0.
        logs = np.log(np.concatenate([memory.counts + 0.1, ages + 0.02], axis=1))
        popularity = memory.popularity().astype(np.float32)
        return cls(logs.astype(np.float32), popularity, memory.is_seen)


class Evidence(NamedTuple):
    """Sums of all memories at the candidates of B prefixes."""

    pairs: Sums
    neighbours: Sums
    categories: Sums
    past: Sums | None
    """None where no past is read."""


def candidate_features(
    prefixes: Clicks, candidates: Columns, evidence: Evidence, known: ItemFeatures, n_features: int
) -> Floats32:
    """Return features [B, C, F]; a network's, after those of the memories, are left 0.

    A count c of a candidate with popularity p becomes log((c + n * p) / (total + n)), with a prior
    count n: its share of the row's clicks, with Dirichlet smoothing (Zhai and Lafferty 2004). For
    categories and pasts, the log-share expected without them is subtracted.
    """
    share = known.popularity[candidates][..., None]  # [B, C, 1]
    of_pairs = _log_share(evidence.pairs, share, PAIR_DOUBTS)
    n_columns = evidence.categories.masses.shape[1] // 2
    base = np.exp(of_pairs[..., [BASE]])
    # Clicks are compared with popularity, transitions with the pairs of the last item.
    expected = np.concatenate([share.repeat(n_columns, 2), base.repeat(n_columns, 2)], axis=2)
    parts = [
        of_pairs,
        _log_share(evidence.neighbours, share, NEIGHBOUR_DOUBT),
        _log_share(evidence.categories, expected, CATEGORY_DOUBT) - np.log(expected),
        known.logs[candidates],
        own_features(prefixes, candidates),
    ]
    if evidence.past is not None:
        parts.append(own_features(prefixes.earlier, candidates))
        parts.append(_log_share(evidence.past, share, PAST_DOUBT) - np.log(share))
    n_missing = n_features - sum(part.shape[2] for part in parts)
    # Room for the network's log-softmax, which the model fills in.
    parts.append(np.zeros((*candidates.shape, n_missing), np.float32))
    features: Floats32 = np.concatenate(parts, axis=2, dtype=np.float32)
    return features


def _log_share(sums: Sums, expected: Floats32, doubt: float | Floats32) -> Floats32:
    doubts = np.asarray(doubt, np.float32)
    masses = np.log(sums.masses + doubts)[:, None]
    logs: Floats32 = np.log(sums.counts + doubts * expected) - masses
    return logs


def own_features(prefixes: Clicks, candidates: Columns) -> Floats32:
    """Return the features `OWN_NAMES` [B, C, 3]."""
    latest = prefixes.latest(pairs.REACH)  # [B, L], the last click first
    is_same = (candidates[:, :, None] == latest[:, None]) & (candidates[:, :, None] > 0)
    place = 1 / np.arange(1, latest.shape[1] + 1, dtype=np.float32)
    own = [is_same.any(2), (is_same * place).max(2), is_same[:, :, 0]]
    features: Floats32 = np.stack(own, axis=2).astype(np.float32)
    return features
