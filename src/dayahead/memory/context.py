"""Context: features of a prefix as a whole, by which the head weighs those of the candidates."""

import math

import numpy as np
from numpy.typing import NDArray

from dayahead.core.columns import DAY
from dayahead.memory.clicks import Clicks
from dayahead.memory.features import BASE, ITEM_NAMES, Evidence, ItemFeatures
from dayahead.memory.neighbours import N_SUMS
from dayahead.memory.neighbours import NAMES as NEIGHBOUR_NAMES
from dayahead.memory.pairs import NAMES as PAIR_NAMES
from dayahead.memory.table import Floats, Floats32

N_VALUES = 16
"""A category is one-hot encoded by its value modulo this."""
_OF_NEIGHBOURS = NEIGHBOUR_NAMES[:N_SUMS]  # totals of the sharpened channels add nothing
OF_GATE = ("prefix.length", "prefix.is_single", "prefix.dwell", "prefix.since_window", "own.pairs")
"""Input of the gate between the session's own items and all others."""
CONTEXT_NAMES = (
    *(f"mass.{name}" for name in PAIR_NAMES),
    *(f"mass.{name}" for name in _OF_NEIGHBOURS),
    *OF_GATE,
    *(f"last.{name}" for name in ITEM_NAMES),
    "last.is_new",
    "last.peak",
    "hour.sin",
    "hour.cos",
)
"""Logarithms of the evidence's totals, of length and of seconds between the last two clicks;
windows since the memories' end; log-odds that an item of the session follows the last one;
features of the last item, and the highest share among its pairs; the hour of the day."""
_DOUBT = 0.5
"""Prior count of clicks on the session's items and on others in the odds (Jeffreys' prior)."""

PAST_NAMES = ("past.length", "past.age", "past.is_none")
"""Logarithms of the past's length and of the windows since its last click; whether it is empty."""


def context_names(columns: tuple[str, ...], with_past: bool = False) -> tuple[str, ...]:
    """Name the context of a model with these categorical columns, in order."""
    values = (f"{name}.{value}" for name in columns for value in range(N_VALUES))
    return *CONTEXT_NAMES, *values, *(PAST_NAMES if with_past else ())


def context(
    prefixes: Clicks,
    evidence: Evidence,
    is_own: NDArray[np.bool_],
    known: ItemFeatures,
    now: tuple[int, int],
) -> Floats32:
    """Return the context [B, X].

    Args:
        prefixes: B prefixes.
        evidence: sums of the memories at the candidates of these prefixes.
        is_own: [B, N] which of the N best are in the prefix; no others are read, so that the
            context is the same however many candidates the head ranks.
        known: features of the items, equal for every prefix.
        now: time of the memories and length of a window, in microseconds.
    """
    end, unit = now
    last = prefixes.last
    times, items = prefixes.times[last], prefixes.items[last]
    dwell = np.where(prefixes.lengths > 1, times - prefixes.times[last - 1], 0) / 1_000_000
    angle = times % DAY * (2 * np.pi / DAY)
    followers = evidence.pairs.counts[:, : is_own.shape[1], BASE]
    n_followers = evidence.pairs.masses[:, BASE]
    own = (followers * is_own).sum(1)
    numbers = [
        np.log1p(evidence.pairs.masses),
        np.log1p(evidence.neighbours.masses[:, :N_SUMS]),
        np.log(prefixes.lengths),
        prefixes.lengths == 1,
        np.log1p(np.maximum(dwell, 0)),
        np.clip((times - end) / unit, -1, 2),
        # `own` is a sum over candidates in float32: rounding can put it above the row's total.
        np.log((own + _DOUBT) / (np.maximum(n_followers - own, 0) + _DOUBT)),
        known.logs[items],
        ~known.is_seen[items],
        followers.max(1) / (n_followers + 1),
        np.sin(angle),
        np.cos(angle),
    ]
    is_value = prefixes.categories[last][:, :, None] % N_VALUES == np.arange(N_VALUES)
    parts = [*numbers, is_value]
    if evidence.past is not None:
        parts.append(_past_context(prefixes, unit))
    columns = [each.reshape(len(each), math.prod(each.shape[1:])) for each in parts]
    return np.concatenate(columns, axis=1, dtype=np.float32)


def _past_context(prefixes: Clicks, unit: int) -> Floats:
    """Return the context `PAST_NAMES` [B, 3]."""
    past, ages = prefixes.earlier, np.zeros(len(prefixes))
    has_past = past.lengths > 0
    # `last` is no valid index where the past is empty, hence only rows that have one.
    since = prefixes.times[prefixes.last[has_past]] - past.times[past.last[has_past]]
    ages[has_past] = np.maximum(since, 0) / unit
    return np.stack([np.log1p(past.lengths), np.log1p(ages), ~has_past], axis=1)
