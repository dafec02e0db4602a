"""The metric of decisions over windows: is the newest as usual, and the newest few?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dayahead.config.nightly import NightlyConfig
from dayahead.metrics.metrics import Values
from dayahead.nightly.guards import Check, baseline_check, fall_check, slow_check

MONTH: Final = 4
"""Its windows per `nightly.windows`, a week in a shop with windows of days."""
YEAR: Final = 52
"""A best month longer ago is forgotten."""


@dataclass(frozen=True)
class MetricSeries:
    """The metric of windows that are a measure, in order, the newest last."""

    windows: Sequence[str]
    own: Sequence[float]
    baselines: Mapping[str, Sequence[float]]
    """By counting baseline."""

    def checks(
        self, config: NightlyConfig, accepted: Mapping[str, str], *, is_better: bool
    ) -> list[Check]:
        """Run the guards of the metric.

        Args:
            config: the limits.
            accepted: by guard, the window in which a loss was published that its limit does not
                allow: it is evaluated from there on.
            is_better: whether the model is with confidence better than the published one.
        """
        n = config.windows
        newest = {name: values[-n:] for name, values in self.baselines.items()}
        fall = fall_check(self.own[-1], self.own[-n - 1 : -1], config, is_better=is_better)
        found = [fall, baseline_check(self.own[-n:], newest, config)]
        for guard, what, beside in (
            ("max_lead_loss", "lead over the best baseline", list(self.baselines.values())),
            ("max_decline", config.metric, []),
        ):
            start = sum(window < accepted.get(guard, "") for window in self.windows)
            levels = week_and_best_month(self.own[start:], [row[start:] for row in beside], n)
            found.append(slow_check(guard, levels, what, config, is_better=is_better))
        return found


def week_and_best_month(
    own: Sequence[float], baselines: Sequence[Sequence[float]], week: int
) -> tuple[float, float] | None:
    """Return the level of the newest windows, and that of the best month before them.

    The level is the mean, per mean of the best baseline where there are any. None for too few.
    """
    month = MONTH * week
    if len(own) < month + week:
        return None
    table = np.array([own, *baselines], dtype=np.float64)[:, -YEAR * week :]
    before = _moving_means(table[:, :-week], month)
    return float(_levels(table[:, -week:].mean(axis=1)[:, None])[0]), float(_levels(before).max())


def _levels(means: Values) -> Values:
    """Return the first row, per largest of the others."""
    own: Values = means[0]
    if len(means) == 1:
        return own
    best = means[1:].max(axis=0)
    return np.asarray(np.divide(own, best, out=np.zeros_like(best), where=best > 0))


def _moving_means(table: Values, n: int) -> Values:
    return np.asarray(sliding_window_view(table, n, axis=1).mean(axis=2))
