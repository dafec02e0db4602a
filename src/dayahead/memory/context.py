"""Context: what is known of a prefix as a whole, so that the head can weigh its evidence by it."""

import numpy as np
from numpy.typing import NDArray

from dayahead.memory.clicks import Clicks
from dayahead.memory.features import ITEM_NAMES, CategoryEvidence, ItemFeatures
from dayahead.memory.items import NEVER, ItemMemory
from dayahead.memory.neighbours import Neighbourhood
from dayahead.memory.pairs import CHANNELS, NEXT, PairEvidence, NAMES as PAIR_NAMES

_SECOND = 1_000_000
_DAY = 24 * 60 * 60 * _SECOND
N_VALUES = 16
"""A category enters by its value modulo this."""
_BASE = CHANNELS.index((NEXT, 4.0))
CONTEXT_NAMES = (
    *(f"mass.{name}" for name in PAIR_NAMES),
    "mass.neighbours",
    "prefix.length",
    "prefix.is_single",
    "prefix.dwell",
    "prefix.since_window",
    *(f"last.{name}" for name in ITEM_NAMES),
    "last.is_new",
    "last.peak",
    "hour.sin",
    "hour.cos",
)


def context_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Name the context of a model with these categorical columns, in order."""
    return (*CONTEXT_NAMES, *(f"{name}.{value}" for name in columns for value in range(N_VALUES)))


def context(
    prefixes: Clicks,
    evidence: tuple[PairEvidence, Neighbourhood, CategoryEvidence],
    memory: ItemMemory,
    known: ItemFeatures,
    now: tuple[int, int],
) -> NDArray[np.float32]:
    """Return the context [B, X]; `now` is the end of the last window and a window's length."""
    pair, near, _ = evidence
    end, unit = now
    last = prefixes.last
    times = prefixes.times[last]
    items = np.where(prefixes.items[last] < len(memory.first), prefixes.items[last], 0)
    near_mass = np.add.reduceat(np.append(near.values[:, 0], 0), near.offsets[:-1])
    near_mass[np.diff(near.offsets) == 0] = 0
    dwell = np.where(prefixes.lengths > 1, times - prefixes.times[last - 1], 0) / _SECOND
    angle = times % _DAY * (2 * np.pi / _DAY)
    numbers = [
        np.log1p(pair.masses),
        np.log1p(near_mass),
        np.log(prefixes.lengths),
        prefixes.lengths == 1,
        np.log1p(np.maximum(dwell, 0)),
        np.clip((times - end) / unit, -1, 2),
        known.logs[items],
        memory.first[items] == NEVER,
        pair.counts[:, :, _BASE].max(1) / (pair.masses[:, _BASE] + 1),
        np.sin(angle),
        np.cos(angle),
    ]
    columns = [np.atleast_2d(each.T).T.astype(np.float32) for each in numbers]
    is_value = prefixes.categories[last][:, :, None] % N_VALUES == np.arange(N_VALUES)
    return np.concatenate([*columns, is_value.reshape(len(last), -1).astype(np.float32)], axis=1)
