"""How much two settings differ, over windows and runs; and a run from the baselines beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats takes a second to import

from dayahead.aggregate.averaging import MIN_WINDOWS, Interval
from dayahead.metrics.metrics import Values, mean
from dayahead.metrics.tables import WindowResult, mean_metrics


@dataclass(frozen=True)
class Difference:
    """How much B differs from A, and how certain that is."""

    difference: float
    """Mean of B - A over windows and runs."""
    ci95: Interval | None
    """None for fewer than 5 windows."""
    p: float | None
    """Two-sided; None where windows or runs are too few to tell."""


@dataclass(frozen=True)
class BaselineComparison:
    """A baseline, or a run beside the report's, and what the run has more than it."""

    name: str
    rows: Sequence[WindowResult]
    aod: dict[str, float]
    tests: dict[str, Difference]
    """Of each metric: the run's value minus the baseline's."""
    better: dict[str, int]
    """Windows where the run has the higher value, by metric."""


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

    The targets of a window vary together, so windows are the clusters (a ratio estimator with the
    t distribution).

    Args:
        sums: [windows] of the differences of a window's targets.
        counts: [windows] of these targets; windows without any are left out.
    """
    is_there = counts > 0
    sums, counts = sums[is_there], counts[is_there]
    difference, n = float(sums.sum() / counts.sum()), len(counts)
    if n < MIN_WINDOWS:
        return Difference(difference, None, None)
    residuals = sums - difference * counts
    error = math.sqrt(n / (n - 1) * float((residuals**2).sum())) / float(counts.sum())
    half = float(stdtrit(n - 1, 0.975)) * error
    return Difference(difference, (difference - half, difference + half), None)


def difference_test(a: Values, b: Values) -> Difference:
    """Test whether B differs from A on other windows and with other seeds too.

    The variance of the difference is that over windows of the means over runs, plus that over runs
    of the means over windows, pooled over A and B; Satterthwaite's degrees of freedom (1946). The
    noise of single cells is in both, so the test is conservative. If the settings are equal, all
    runs are exchangeable, and the second part alone suffices, whatever the correlation of windows.

    Args:
        a: [runs, windows] metric of A; B's windows are the same.
        b: [runs, windows] metric of B.
    """
    by_window = b.mean(axis=0) - a.mean(axis=0)
    difference = mean(by_window)
    if len(by_window) < MIN_WINDOWS:
        return Difference(difference, None, None)
    parts = [(by_window.var(ddof=1) / len(by_window), len(by_window) - 1)]
    if (n_spare := len(a) + len(b) - 2) > 0:
        spread = sum(len(runs) * runs.mean(axis=1).var() for runs in (a, b)) / n_spare
        parts.append((spread * (1 / len(a) + 1 / len(b)), n_spare))
    variance = sum(part for part, _ in parts)
    if variance == 0:  # t is 0 / 0 or infinite
        return Difference(difference, (difference, difference), float(difference == 0))
    freedom = variance**2 / sum(part**2 / n for part, n in parts)
    error = math.sqrt(variance)
    half = float(stdtrit(freedom, 0.975)) * error
    p = 2 * float(stdtr(freedom, -abs(difference) / error)) if n_spare > 0 else None
    return Difference(difference, (difference - half, difference + half), p)
