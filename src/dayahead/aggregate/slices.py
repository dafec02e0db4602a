"""Metrics of a run and of others by groups of targets: where it wins and loses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dayahead.aggregate.targets import ABSENT, Targets
from dayahead.metrics.metrics import Values
from dayahead.statistics.differences import Difference, clustered_difference


@dataclass(frozen=True)
class _Grouping:
    """A way to group targets by a number that each of them has."""

    title: str
    by: str
    """Field of `Targets`."""
    groups: Sequence[tuple[float, str]]
    """Lower ends, ascending, and labels."""
    below: str = ""
    """Label of targets below all of them, if there can be any."""

    @property
    def ends(self) -> Sequence[float]:
        """Lower ends of all groups but the first."""
        return [end for end, _ in self.groups]

    @property
    def labels(self) -> Sequence[str]:
        """Labels of all groups."""
        return [self.below, *(label for _, label in self.groups)]


_GROUPINGS: Final = (
    _Grouping(
        "Items of the session before the target",
        "n_before",
        (
            (1, "1 item"),
            (2, "2 items"),
            (3, "3 or 4 items"),
            (5, "5 to 9 items"),
            (10, "10 items or more"),
        ),
    ),
    _Grouping(
        "Age of the target's item when the window begins",
        "age",
        (
            (0, "under 1 hour"),
            (1, "1 to 6 hours"),
            (6, "6 to 24 hours"),
            (24, "1 to 3 days"),
            (72, "3 to 7 days"),
            (168, "7 to 30 days"),
            (720, "30 days or more"),
        ),
        below="new: first seen in the window",
    ),
    _Grouping(
        "Popularity of the target's item in the window before",
        "popularity",
        (
            (1, "the 10 most popular"),
            (11, "11th to 100th"),
            (101, "101st to 1,000th"),
            (1001, "beyond the 1,000th"),
            (ABSENT, "not in the window before"),
        ),
    ),
)


@dataclass(frozen=True)
class Slice:
    """A group of targets."""

    label: str
    n_targets: int
    share: float
    """Share of all targets."""
    value: float
    """Mean of the run's metric over the targets."""
    others: Mapping[str, float]
    """The same for baselines and other runs, by name."""
    tests: Mapping[str, Difference]
    """The run's mean minus theirs."""


@dataclass(frozen=True)
class Slicing:
    """All targets, each in one group."""

    title: str
    slices: Sequence[Slice]


def sums_by_group(targets: Targets, values: Sequence[Values]) -> list[Values]:
    """Group a window's targets in each way: by session, item and time.

    Returns:
        For each way [groups, 1 + values]: the number of targets, and the sum of each value.
    """
    found = []
    for grouping in _GROUPINGS:
        codes = np.searchsorted(grouping.ends, getattr(targets, grouping.by), side="right")
        size = len(grouping.labels)
        columns = [np.bincount(codes, weights, size) for weights in (None, *values)]
        found.append(np.stack(columns, axis=1).astype(np.float64))
    return found


def slicings_of(windows: Sequence[Sequence[Values]], names: Sequence[str]) -> list[Slicing]:
    """Join the sums of windows; `names` are those of the values after the first, the run's own."""
    return [
        Slicing(grouping.title, list(slices_of(grouping.labels, np.stack(sums), names)))
        for grouping, sums in zip(_GROUPINGS, zip(*windows, strict=True), strict=True)
    ]


def slices_of(labels: Sequence[str], sums: Values, names: Sequence[str]) -> Iterator[Slice]:
    """Yield the groups that have targets.

    Args:
        labels: of the groups.
        sums: [windows, groups, 1 + values], as `sums_by_group` returns them.
        names: names of the values after the first, the run's own.

    Raises:
        ValueError: the shapes differ.
    """
    n_all = sums[..., 0].sum()
    for row, label in enumerate(labels):
        counts, own, *others = sums[:, row].T
        if n_targets := int(counts.sum()):
            yield Slice(
                label=label,
                n_targets=n_targets,
                share=n_targets / n_all,
                value=float(own.sum() / n_targets),
                others={
                    name: float(other.sum() / n_targets)
                    for name, other in zip(names, others, strict=True)
                },
                tests={
                    name: clustered_difference(own - other, counts)
                    for name, other in zip(names, others, strict=True)
                },
            )
