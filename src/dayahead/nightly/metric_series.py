"""The decision metric over windows: whether the newest one, and the newest few, are as usual."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dayahead.config.nightly import NightlyConfig
from dayahead.metrics.metrics import Values
from dayahead.nightly.guards import Check, baseline_check, fall_check, slow_check

MONTH: Final = 4
"""Length of a month in units of `nightly.windows`, which is a week in a shop with daily windows."""
YEAR: Final = 52
"""Length of a year in the same unit: the best month is looked for within it."""


@dataclass(frozen=True)
class MetricSeries:
    """The metric in the windows that serve as reference, in order, the newest last."""

    windows: Sequence[str]
    own: Sequence[float]
    baselines: Mapping[str, Sequence[float]]
    """The metric by counting baseline."""

    def checks(
        self, config: NightlyConfig, accepted: Mapping[str, str], *, is_better: bool
    ) -> list[Check]:
        """Run the guards of the metric.

        Args:
            config: the limits.
            accepted: by guard, the window in which a loss beyond its limit was published: the guard
                compares from there on.
            is_better: whether the model is significantly better than the published one.
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
    """Return the level of the newest windows, and that of the best month before them; or None.

    The level is the mean, divided by that of the best baseline if there are any. None if there are
    too few windows.
    """
    month = MONTH * week
    if len(own) < month + week:
        return None
    table = np.array([own, *baselines], dtype=np.float64)[:, -YEAR * week :]
    before = sliding_window_view(table[:, :-week], month, axis=1).mean(axis=2)
    return float(_levels(table[:, -week:].mean(axis=1)[:, None])[0]), float(_levels(before).max())


def _levels(means: Values) -> Values:
    """Return the first row divided by the largest of the others."""
    own: Values = means[0]
    if len(means) == 1:
        return own
    best = means[1:].max(axis=0)
    return np.asarray(np.divide(own, best, out=np.zeros_like(best), where=best > 0))
