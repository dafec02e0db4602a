"""The average over days (AOD) with its confidence interval, and the session-weighted mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from dayahead.config.metric_names import BUILT_IN
from dayahead.metrics.metrics import Ranks, mean, target_metric
from dayahead.outputs.tables import WindowResult, mean_metrics
from dayahead.statistics.intervals import Interval, mean_interval


@dataclass(frozen=True)
class Average:
    """The content of aod.json."""

    aod: dict[str, float]
    """Unweighted mean over windows."""
    ci95: dict[str, Interval | None]
    """By Student's t over windows (`mean_interval`); None for fewer than 5."""
    session_mean: dict[str, float]
    """Mean over the targets of all sessions, so that busy windows have more weight."""
    n_windows: int
    n_sessions: int


def average(results: Sequence[WindowResult], ranks: Sequence[Ranks]) -> Average:
    """Average over windows, and over the targets of all windows.

    `ranks` are those of the windows of `results`, in the same order; 0 is a miss.
    """
    names = [*results[0].metrics]
    by_window = {name: [result.metrics[name] for result in results] for name in names}
    every_rank = np.concatenate(ranks)
    return Average(
        aod=mean_metrics(results),
        ci95={name: _interval(name, values) for name, values in by_window.items()},
        session_mean={name: mean(target_metric(name, every_rank)) for name in names},
        n_windows=len(results),
        n_sessions=sum(result.n_sessions for result in results),
    )


def _interval(name: str, values: Sequence[float]) -> Interval | None:
    """Return the interval of a mean; a metric of another package may have any range."""
    is_ours = name.split("_at_")[0] in BUILT_IN
    return mean_interval(values) if is_ours else mean_interval(values, -inf, inf)
