"""Metrics as functions of the ranks alone. With one target recall is the hit rate, MRR is MAP."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dayahead.errors import DataError

Values = NDArray[np.float64]
Ranks = NDArray[np.integer]

_GAIN: Final[dict[str, Callable[[Values], Values]]] = {
    "recall": np.ones_like,
    "ndcg": lambda ranks: 1 / np.log2(1 + ranks),
    "mrr": lambda ranks: 1 / ranks,
}
"""What a target found at a rank is worth."""


def metric_names(cutoffs: Sequence[int]) -> list[str]:
    """Name every metric at every cutoff: recall_at_10, recall_at_20, ndcg_at_10, ..."""
    return [f"{kind}_at_{cutoff}" for kind in _GAIN for cutoff in sorted(set(cutoffs))]


def session_metric(name: str, ranks: Ranks) -> Values:
    """Value of one metric for each session.

    Args:
        name: one of `metric_names`, such as ndcg_at_20.
        ranks: 1 is best, 0 is a miss.
    """
    kind, cutoff = name.split("_at_")
    is_found = (ranks > 0) & (ranks <= int(cutoff))
    values = np.zeros(len(ranks))
    values[is_found] = _GAIN[kind](ranks[is_found].astype(np.float64))
    return values


def mean(values: Values) -> float:
    """Mean by an exact sum: the same to the last bit in whatever order the values come."""
    return math.fsum(values) / len(values)


def window_metrics(ranks: Ranks, cutoffs: Sequence[int]) -> dict[str, float]:
    """Every metric's mean over a window's sessions.

    Raises:
        DataError: there are no sessions.
    """
    if len(ranks) == 0:
        raise DataError(
            "a window to be measured has no sessions in its split; raise window.min_sessions "
            "or widen the split's interval in the data set's file"
        )
    return {name: mean(session_metric(name, ranks)) for name in metric_names(cutoffs)}
