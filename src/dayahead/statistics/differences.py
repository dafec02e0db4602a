"""Differences of two settings over windows and runs, and of a run and its baselines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dayahead.metrics.metrics import Values, mean
from dayahead.outputs.tables import WindowResult, mean_metrics
from dayahead.statistics.intervals import (
    MIN_WINDOWS,
    Interval,
    Variance,
    interval,
    over_runs,
    over_windows,
    p_value,
)


@dataclass(frozen=True)
class Difference:
    """How much B differs from A, and how certain that is."""

    difference: float
    """Mean of B - A over windows and runs."""
    ci95: Interval | None
    """None for fewer than 5 windows."""
    p: float | None
    """Two-sided; None for fewer than 5 windows, or a setting with one run."""
    parts: Sequence[Variance] = ()
    """Parts of the variance of the difference."""


@dataclass(frozen=True)
class BaselineComparison:
    """A baseline, or another run, and the difference of the report's run to it."""

    name: str
    rows: Sequence[WindowResult]
    aod: dict[str, float]
    tests: dict[str, Difference]
    """Tests by metric: the run's value minus the baseline's."""
    better: dict[str, int]
    """Number of windows where the run has the higher value, by metric."""


def compare_with_baseline(
    rows: Sequence[WindowResult], name: str, baseline: Sequence[WindowResult]
) -> BaselineComparison:
    """Compare a run with a baseline on the same windows."""
    metrics = list(rows[0].metrics)
    own, other = (
        {metric: np.array([row.metrics[metric] for row in table]) for metric in metrics}
        for table in (rows, baseline)
    )
    return BaselineComparison(
        name=name,
        rows=baseline,
        aod=mean_metrics(baseline),
        tests={
            metric: difference_test(other[metric][None], own[metric][None]) for metric in metrics
        },
        better={metric: int((own[metric] > other[metric]).sum()) for metric in metrics},
    )


def clustered_difference(sums: Values, counts: Values) -> Difference:
    """Return a mean difference over targets, with an interval by windows.

    The targets of a window vary together, so windows are the clusters (a ratio estimator).

    Args:
        sums: [windows], in order of time: sum of the differences over a window's targets.
        counts: [windows] number of these targets; windows without any are left out.
    """
    is_there = counts > 0
    sums, counts = sums[is_there], counts[is_there]
    difference, n = float(sums.sum() / counts.sum()), len(counts)
    if n < MIN_WINDOWS:
        return Difference(difference, None, None)
    # Residuals of the ratio estimator: they sum to 0 over all windows.
    of_mean = over_windows(sums - difference * counts)
    part = Variance(float(of_mean.value) * (n / float(counts.sum())) ** 2, of_mean.freedom)
    return Difference(difference, interval(difference, [part]), None, (part,))


def difference_test(a: Values, b: Values) -> Difference:
    """Test whether B differs from A on other windows and with other seeds too.

    The variance of the difference has two parts: over windows, of the means over runs, and over
    runs, of the means over windows. The noise of single cells is in both, so the test is
    conservative. If the settings are equal, all runs are exchangeable, and the second part alone
    suffices, whatever the correlation of windows.

    Args:
        a: [runs, windows] metric of A, in order of time; B's windows are the same.
        b: [runs, windows] metric of B.
    """
    by_window = b.mean(axis=0) - a.mean(axis=0)
    difference = mean(by_window)
    if len(by_window) < MIN_WINDOWS:
        return Difference(difference, None, None)
    found = (over_windows(by_window), over_runs(a, b))
    parts = tuple(part for part in found if part is not None)
    # A setting with one run does not show how much its seeds vary.
    p = p_value(difference, parts) if min(len(a), len(b)) > 1 else None
    return Difference(difference, interval(difference, parts), p, parts)
