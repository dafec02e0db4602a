"""Context: features of a prefix as a whole, by which the head weighs those of the candidates."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dayahead.core.columns import DAY
from dayahead.memory.clicks import Clicks, Floats32
from dayahead.memory.items import ItemFeatures
from dayahead.memory.lookup import Sums

N_VALUES = 16
"""A category is one-hot encoded by its value modulo this."""
OF_GATE = ("prefix.length", "prefix.is_single", "prefix.dwell", "prefix.since_window", "own.pairs")
"""Input of the gate between the session's own items and all others."""
_DOUBT = 0.5
"""Prior count of clicks on the session's items and on others in the odds (Jeffreys' prior)."""

PAST_NAMES = ("past.length", "past.age", "past.is_none")
"""Logarithms of the past's length and of the windows since its last click; whether it is empty."""


def context_names(
    masses: Sequence[str], of_items: Sequence[str], columns: Sequence[str], *, with_past: bool
) -> tuple[str, ...]:
    """Name the context, in order.

    These are logarithms of the memories' totals, of length and of seconds between the last two
    clicks; windows since the memories' end; log-odds that an item of the session follows the last
    one; features of the last item, and the highest share among its pairs; the hour of the day; and
    one-hot encoded categories.

    Args:
        masses: names of the memories' channels whose totals are read.
        of_items: names of an item's features.
        columns: names of the categorical columns.
        with_past: whether the user's past is read.
    """
    return (
        *(f"mass.{name}" for name in masses),
        *OF_GATE,
        *(f"last.{name}" for name in of_items),
        "last.is_new",
        "last.peak",
        "hour.sin",
        "hour.cos",
        *(f"{name}.{value}" for name in columns for value in range(N_VALUES)),
        *(PAST_NAMES if with_past else ()),
    )


def context(
    prefixes: Clicks,
    masses: Floats32,
    followers: Sums,
    is_own: NDArray[np.bool_],
    known: ItemFeatures,
    now: tuple[int, int],
) -> Floats32:
    """Return the context [B, X], without that of the user's past.

    Args:
        prefixes: B prefixes.
        masses: [B, M] totals of the memories.
        followers: counts of the candidates after the last item, in one channel.
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
    counts, n_followers = followers.counts[:, : is_own.shape[1], 0], followers.masses[:, 0]
    own = (counts * is_own).sum(1)
    numbers = [
        np.log1p(masses),
        np.log(prefixes.lengths),
        prefixes.lengths == 1,
        np.log1p(np.maximum(dwell, 0)),
        np.clip((times - end) / unit, -1, 2),
        # `own` is a sum over candidates in float32: rounding can put it above the row's total.
        np.log((own + _DOUBT) / (np.maximum(n_followers - own, 0) + _DOUBT)),
        known.logs[items],
        ~known.is_seen[items],
        counts.max(1) / (n_followers + 1),
        np.sin(angle),
        np.cos(angle),
    ]
    is_value = prefixes.categories[last][:, :, None] % N_VALUES == np.arange(N_VALUES)
    columns = [each.reshape(len(each), math.prod(each.shape[1:])) for each in (*numbers, is_value)]
    return np.concatenate(columns, axis=1, dtype=np.float32)


def past_context(prefixes: Clicks, unit: int) -> Floats32:
    """Return the context of the user's past [B, 3]; `unit` is a window's length."""
    past, ages = prefixes.earlier, np.zeros(len(prefixes))
    has_past = past.lengths > 0
    # `last` is no valid index where the past is empty, hence only rows that have one.
    since = prefixes.times[prefixes.last[has_past]] - past.times[past.last[has_past]]
    ages[has_past] = np.maximum(since, 0) / unit
    context = [np.log1p(past.lengths), np.log1p(ages), ~has_past]
    found: Floats32 = np.stack(context, axis=1).astype(np.float32)
    return found
