"""Bootstrap over sessions: intervals of means over clicks, which vary together in a session."""

from typing import Final

import numpy as np

from dayahead.metrics.metrics import Values
from dayahead.statistics.intervals import Interval

N_REPLICATES: Final = 2_000
MOST_UNITS: Final = 2_000
"""Maximum number of units to draw from; where there are more sessions, several form a unit."""
MIN_SESSIONS: Final = 20
"""Minimum number of sessions for an interval: fewer do not show how sessions vary."""


def replicates(sums: Values, counts: Values, seed: int) -> Values:
    """Return [N_REPLICATES] ratios sum(sums) / sum(counts) of sessions drawn with replacement.

    Args:
        sums: [sessions] sum of a metric over the clicks of a session; in no order that matters.
        counts: [sessions] number of these clicks, at least 1.
        seed: of the draw.
    """
    n = min(len(sums), MOST_UNITS)
    unit = np.arange(len(sums)) % n
    of_units = [np.bincount(unit, of, n).astype(np.float64) for of in (sums, counts)]
    draw = np.random.default_rng(seed)
    times = draw.multinomial(n, np.full(n, 1 / n), N_REPLICATES)
    found: Values = (times @ of_units[0]) / (times @ of_units[1])
    return found


def percentiles(values: Values) -> Interval:
    """Return the 95 % interval of a figure from its replicates."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
