"""The average over days (AOD) with its confidence interval, and the session-weighted mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dayahead.metrics.metrics import Ranks, mean, metric_names, target_metric
from dayahead.metrics.tables import WindowResult

N_SAMPLES: Final = 10_000
SEED: Final = 20_190_901
MIN_WINDOWS: Final = 5
"""With fewer windows, a percentile interval says more about the sampling than about the run."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Average:
    """The content of aod.json."""

    aod: dict[str, float]
    """Unweighted mean over windows."""
    ci95: dict[str, Interval | None]
    """Percentile bootstrap over windows; None for fewer than 5."""
    session_mean: dict[str, float]
    """Mean over the targets of all sessions, so that busy windows have more weight."""
    n_windows: int
    n_sessions: int


def average(
    results: Sequence[WindowResult], ranks: Sequence[Ranks], cutoffs: Sequence[int]
) -> Average:
    """Average over windows, and over the targets of all windows.

    `ranks` are those of the windows of `results`, in the same order; 0 is a miss.
    """
    names = metric_names(cutoffs)
    by_window = {name: [result.metrics[name] for result in results] for name in names}
    every_rank = np.concatenate(ranks)
    return Average(
        aod={name: mean(values) for name, values in by_window.items()},
        ci95={name: bootstrap_interval(values) for name, values in by_window.items()},
        session_mean={name: mean(target_metric(name, every_rank)) for name in names},
        n_windows=len(results),
        n_sessions=sum(result.n_sessions for result in results),
    )


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % percentile interval of the mean, or None for fewer than 5 values.

    It comes from 10,000 bootstrap samples with a fixed seed (Efron 1979). Windows are sampled as
    if they were independent, which neighbours are not: the true interval is wider.
    """
    if len(values) < MIN_WINDOWS:
        return None
    samples = np.random.default_rng(SEED).integers(len(values), size=(N_SAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values)[samples].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
