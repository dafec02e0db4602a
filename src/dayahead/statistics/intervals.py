"""Confidence intervals and tests: Student's t over windows, which resemble their neighbours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.fft import dct
from scipy.optimize import brentq
from scipy.special import stdtrit  # Student's t; scipy.stats takes a second to import

from dayahead.metrics.metrics import Values, mean

Interval = tuple[float, float]
MIN_WINDOWS: Final = 5
"""Minimum number of windows for an interval: with fewer, its width depends on the method mostly."""
_SMALLEST: Final = 1e-12
"""Smallest tail probability for which a quantile is computed."""


@dataclass(frozen=True)
class Variance:
    """An estimated part of the variance of a mean."""

    value: Any
    """A number, or an array of them."""
    freedom: int
    """Degrees of freedom of the estimate."""


def over_windows(series: Values) -> Variance:
    """Estimate the variance of the mean of values in order of time, along the last axis.

    The equal-weighted cosine estimator: the mean square of the coefficients of the slowest
    cosines, where autocorrelation shows; the mean then follows Student's t with as many degrees
    of freedom (Lazarus, Lewis, Stock and Watson 2018). Their number is 0.4 n^(2/3), at least 3;
    with all n - 1 it would be the usual variance, for independent values.
    """
    n = series.shape[-1]
    n_cosines = min(n - 1, max(3, round(0.4 * n ** (2 / 3))))
    centred = series - series.mean(axis=-1, keepdims=True)
    slowest = dct(centred, norm="ortho", axis=-1)[..., 1 : n_cosines + 1]
    return Variance((slowest**2).mean(axis=-1) / n, n_cosines)


def over_runs(a: Values, b: Values) -> Variance | None:
    """Estimate the variance that seeds give to the difference of two settings.

    Args:
        a: [..., runs, windows] metric of A.
        b: the same of B, which may have another number of runs.

    Returns:
        None for one run each. A setting with one run is taken to vary as the other does. The
        degrees of freedom are those of two settings that vary alike, with as many runs each as
        the setting with fewer has.
    """
    n_a, n_b = a.shape[-2], b.shape[-2]
    spreads = [runs.mean(axis=-1).var(axis=-1, ddof=1) for runs in (a, b) if runs.shape[-2] > 1]
    if not spreads:
        return None
    freedom = 2 * (min(n_a, n_b) - 1) or max(n_a, n_b) - 1
    return Variance(spreads[0] / n_a + spreads[-1] / n_b, freedom)


def half_width(parts: Sequence[Variance], error: float) -> Any:  # noqa: ANN401 - as `value`
    """Return half the width of an interval; beyond each end is at most the probability `error`.

    The root of the sum of t^2 times variance over independent parts (Banerjee 1960): for normal
    values it is at most this probability, whatever the ratio of the parts. Satterthwaite's degrees
    of freedom are not safe where a part has 1 or 2.
    """
    return np.sqrt(sum(stdtrit(part.freedom, error) ** 2 * part.value for part in parts))


def interval(centre: float, parts: Sequence[Variance], error: float = 0.025) -> Interval:
    """Return the interval around an estimate; `error` is the probability beyond each end."""
    half = float(half_width(parts, error))
    return centre - half, centre + half


def p_value(difference: float, parts: Sequence[Variance]) -> float:
    """Return the two-sided p-value: twice the error at which the interval ends at 0."""
    if difference == 0:
        return 1.0
    # Without variance any difference is certain.
    if not any(part.value for part in parts):
        return 0.0

    def excess(log_error: float) -> float:
        return float(half_width(parts, math.exp(log_error))) - abs(difference)

    # Solved for the logarithm, as p-values span many orders of magnitude.
    ends = math.log(_SMALLEST), math.log(0.5)
    return 2 * (math.exp(brentq(excess, *ends)) if excess(ends[0]) > 0 else _SMALLEST)


def runs_interval(values: Values) -> Interval | None:
    """Return the 95 % interval of the mean over windows and over runs with other seeds.

    Args:
        values: [runs, windows] of a metric, in order of time.

    Returns:
        None for fewer than 5 windows; of a single run the interval is that over windows alone.
    """
    n_runs, n_windows = values.shape
    if n_windows < MIN_WINDOWS:
        return None
    by_window = values.mean(axis=0)
    parts = [over_windows(by_window)]
    if n_runs > 1:
        spread = values.mean(axis=1).var(ddof=1)
        parts.append(Variance(spread / n_runs, n_runs - 1))
    return interval(mean(by_window), parts)


def mean_interval(
    values: Sequence[float], least: float = 0.0, most: float = 1.0
) -> Interval | None:
    """Return the 95 % interval of the mean over windows of a metric from `least` to `most`.

    `values` are in order of time; None for fewer than 5 of them.
    """
    found = runs_interval(np.asarray(values, np.float64)[None])
    return found and (max(least, found[0]), min(most, found[1]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for the number of tests (Holm 1979), in the same order.

    The probability of any false finding among those at or below a level is at most this level,
    whatever the tests have in common.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for n_before, index in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (len(p_values) - n_before) * p_values[index]))
        adjusted[index] = highest
    return adjusted
