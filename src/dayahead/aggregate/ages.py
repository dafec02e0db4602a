"""How a model ages: metrics by the time since its last fit, and since its last count of clicks.

Time since a fit goes with the time of day. Where windows are also evaluated with the model fitted
one window earlier (evaluation.horizon), the two models rank the same targets at the same hours:
their difference is that of their ages alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from dayahead.aggregate.targets import HOUR, Ints
from dayahead.core.files import write_csv
from dayahead.metrics.metrics import Ranks, Values, mean, target_metric
from dayahead.statistics.differences import Difference, difference_test

STALENESS: Final = "staleness.csv"
N_BINS: Final = 24
"""Groups by age in the length of a window: hours of a day."""
OLDER: Final = 2
"""Windows since the fit of the model that is compared with the newest."""
N_TICK_BINS: Final = 10
"""Groups by age in the length of a tick."""
Since = Literal["fit", "tick"]
SINCE: Final[Mapping[Since, str]] = {"fit": "the last fit", "tick": "the last tick"}
"""What ages count from."""


@dataclass(frozen=True)
class AgeGroup:
    """The targets asked for at an age of the model: a row of staleness.csv."""

    since: Since
    """What the age counts from: the end of the last window fitted, or the last tick."""
    start: float
    """Hours; the group ends before `end`."""
    end: float
    n_windows: int
    """Windows that have such targets."""
    n_targets: int
    metrics: Mapping[str, float]
    """Means over the targets."""
    newest: float
    """The main metric of the model fitted last on these targets."""


@dataclass(frozen=True)
class Ageing:
    """What time costs a model."""

    groups: Sequence[AgeGroup]
    """By the time since the last fit, then since the last tick, where there are ticks."""
    length: float
    """Hours of a window."""
    metric: str
    """The metric of the tests."""
    horizon: int
    """Windows after each fit that are evaluated."""
    n_windows: int
    """Windows that two models have ranked; with a horizon of 1, those of `first_half`."""
    half_as_often: Difference | None
    """Change of the metric if every second fit were left out; None with a horizon of 1."""
    twice_as_often: Difference | None
    """Change of the metric with a fit in the middle of each window too; None with a horizon of 1.
    Half of what a window of age costs the targets in the later half."""
    first_half: Difference | None
    """The metric in the first half of the time since the last fit minus that over all of it, in
    which the time of day has a part; None without windows with targets in both halves."""

    def since(self, kind: Since) -> Sequence[AgeGroup]:
        """Return the groups of one kind of age, the youngest first."""
        return [group for group in self.groups if group.since == kind]

    @property
    def figures(self) -> dict[str, float]:
        """Return the changes and their intervals, those that there are, by name."""
        found: dict[str, float] = {}
        for name in ("half_as_often", "twice_as_often", "first_half"):
            test: Difference | None = getattr(self, name)
            if test is not None and test.ci95 is not None:
                key, (low, high) = f"{name}_{self.metric}", test.ci95
                found |= {key: test.difference, f"{key}_low": low, f"{key}_high": high}
        return found


class AgeSums:
    """Sums over the targets of windows by age.

    Args:
        metrics: names, among them the main one.
        metric: the main one.
        length: of a window, microseconds.
        tick: microseconds; 0: none.
    """

    def __init__(self, metrics: Sequence[str], metric: str, length: int, tick: int) -> None:
        self.metrics = metrics
        self.metric = metric
        self.length = length
        self.tick = tick
        self.sums: dict[Since, list[Values]] = {"fit": [], "tick": []}
        """[bins, 3 + metrics]: windows, targets, the main metric of the newest model, metrics."""
        self.half: list[float] = []
        self.twice: list[float] = []
        self.early: list[float] = []
        """Changes of the main metric by window, of which `Ageing` has the means."""

    def add(
        self, ages: Ints, since_tick: Ints, own: Ranks, later: Mapping[int, tuple[Ranks, int]]
    ) -> None:
        """Add a window of T targets.

        Args:
            ages: [T] microseconds from the last fit until the target is asked for.
            since_tick: [T] microseconds from the last tick; not read without ticks.
            own: [T] ranks with the model fitted last.
            later: ranks with models fitted n windows before, 2 or more, and how much older these
                are in microseconds.
        """
        newest = target_metric(self.metric, own)
        self._add("fit", np.maximum(ages, 0) // (self.length // N_BINS), own, newest)
        for ranks, older in later.values():
            self._add(
                "fit", (np.maximum(ages, 0) + older) // (self.length // N_BINS), ranks, newest
            )
        if self.tick:
            # A click after the window's end has no tick: nothing counts then.
            rows = since_tick < self.tick
            self._add("tick", since_tick[rows] * N_TICK_BINS // self.tick, own[rows], newest[rows])
        is_late = ages >= self.length / 2
        if OLDER in later:
            lost = target_metric(self.metric, later[OLDER][0]) - newest
            self.half.append(mean(lost) / 2)
            self.twice.append(-mean(lost * is_late) / 2)
        if is_late.any() and not is_late.all():
            self.early.append(mean(newest[~is_late]) - mean(newest))

    def _add(self, since: Since, bins: Ints, ranks: Ranks, newest: Values) -> None:
        values = [newest, *(target_metric(name, ranks) for name in self.metrics)]
        counts = np.bincount(bins)
        sums = [np.bincount(bins, each) for each in values]
        self.sums[since].append(np.stack([counts > 0, counts, *sums], axis=1).astype(np.float64))

    def result(self, horizon: int) -> Ageing:
        """Return the means and tests over all windows added."""
        return Ageing(
            groups=[
                *self._groups("fit", self.length, N_BINS),
                *self._groups("tick", self.tick, N_TICK_BINS),
            ],
            length=self.length / HOUR,
            metric=self.metric,
            horizon=horizon,
            n_windows=len(self.early if horizon == 1 else self.half),
            half_as_often=_test(self.half) if horizon > 1 else None,
            twice_as_often=_test(self.twice) if horizon > 1 else None,
            first_half=_test(self.early),
        )

    def _groups(self, since: Since, length: int, n_bins: int) -> list[AgeGroup]:
        parts = self.sums[since]
        sums = np.zeros((max(map(len, parts), default=0), 3 + len(self.metrics)))
        for part in parts:
            sums[: len(part)] += part
        return [
            AgeGroup(
                since=since,
                start=number * length / n_bins / HOUR,
                end=(number + 1) * length / n_bins / HOUR,
                n_windows=int(n_windows),
                n_targets=int(n_targets),
                metrics={
                    name: value / n_targets
                    for name, value in zip(self.metrics, values, strict=True)
                },
                newest=newest / n_targets,
            )
            for number, (n_windows, n_targets, newest, *values) in enumerate(sums.tolist())
            if n_targets
        ]


def _test(changes: Sequence[float]) -> Difference | None:
    """Test the mean over windows of changes, in order of time."""
    values = np.array([changes], np.float64)
    return difference_test(np.zeros_like(values), values) if changes else None


def write_staleness(results: Path, ageing: Ageing) -> None:
    """Write staleness.csv; floats read back as the same floats."""
    head = ("since", "from_hours", "to_hours", "n_windows", "n_targets", *ageing.groups[0].metrics)
    rows = [
        (each.since, each.start, each.end, each.n_windows, each.n_targets, *each.metrics.values())
        for each in ageing.groups
    ]
    write_csv(results / STALENESS, [head, *rows])
