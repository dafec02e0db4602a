"""Metrics as functions of ranks. With one target recall is the hit rate, and MRR is MAP."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dayahead.metrics.packaged import packaged_values

Values = NDArray[np.float64]
Ranks = NDArray[np.integer[Any]]

_GAIN: Final[dict[str, Callable[[Values], Values]]] = {
    "recall": np.ones_like,
    "ndcg": lambda ranks: 1 / np.log2(1 + ranks),
    "mrr": lambda ranks: 1 / ranks,
}
"""Value of a target by its rank, if it is within the cutoff."""


def metric_names(cutoffs: Sequence[int], packaged: Iterable[str] = ()) -> list[str]:
    """Return the names of all metrics: recall_at_10, recall_at_20, ndcg_at_10, ...

    Those of other packages (`evaluation.metrics`) follow ours.
    """
    kinds = (*_GAIN, *packaged)
    return [f"{kind}_at_{cutoff}" for kind in kinds for cutoff in sorted(set(cutoffs))]


def main_metric(names: Iterable[str]) -> str:
    """Return the one of `metric_names` that conclusions use: NDCG at the longest cutoff."""
    return [name for name in names if name.startswith("ndcg_at_")][-1]


def target_metric(name: str, ranks: Ranks) -> Values:
    """Return one of `metric_names`, such as ndcg_at_20, for each target; rank 0 is a miss.

    Raises:
        ConfigError: the metric is of another package, whose function fails (`packaged_values`).
    """
    kind, cutoff = name.split("_at_")
    if kind not in _GAIN:
        return packaged_values(kind, ranks.astype(np.int64), int(cutoff))
    is_found = (ranks > 0) & (ranks <= int(cutoff))
    values = np.zeros(len(ranks))
    values[is_found] = _GAIN[kind](ranks[is_found].astype(np.float64))
    return values


def mean(values: Sequence[float] | Values) -> float:
    """Return the mean by an exact sum, which does not depend on the order of the values."""
    return math.fsum(values) / len(values)


def window_metrics(
    ranks: Ranks, cutoffs: Sequence[int], packaged: Iterable[str] = ()
) -> dict[str, float]:
    """Return the mean of each of `metric_names` over a window's targets (at least one)."""
    return {name: mean(target_metric(name, ranks)) for name in metric_names(cutoffs, packaged)}
