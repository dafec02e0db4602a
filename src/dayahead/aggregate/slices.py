"""Where a run wins and loses: its metric and those of others by groups of targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dayahead.aggregate.differences import Difference, clustered_difference
from dayahead.aggregate.targets import ABSENT, Floats, Ints, Targets
from dayahead.metrics.metrics import Values

_LENGTHS: Final = (
    (1, "1 item"),
    (2, "2 items"),
    (3, "3 or 4 items"),
    (5, "5 to 9 items"),
    (10, "10 items or more"),
)
"""Lower ends of groups, and their labels."""
_AGES: Final = (
    (0, "under 1 hour"),
    (1, "1 to 6 hours"),
    (6, "6 to 24 hours"),
    (24, "1 to 3 days"),
    (72, "3 to 7 days"),
    (168, "7 to 30 days"),
    (720, "30 days or more"),
)
_RANKS: Final = (
    (1, "the 10 most popular"),
    (11, "11th to 100th"),
    (101, "101st to 1,000th"),
    (1001, "beyond the 1,000th"),
    (ABSENT, "not in the window before"),
)
_NEW: Final = "new: first seen in the window"


@dataclass(frozen=True)
class Slice:
    """A group of targets."""

    label: str
    n_targets: int
    share: float
    """Of all targets."""
    value: float
    """Mean of the run's metric over the targets."""
    others: Mapping[str, float]
    """The same of the baselines and runs beside it, by name."""
    tests: Mapping[str, Difference]
    """The run's mean minus theirs."""


@dataclass(frozen=True)
class Slicing:
    """All targets, each in one group."""

    title: str
    slices: Sequence[Slice]


def slicings_of(
    targets: Targets, windows: Ints, own: Values, others: Mapping[str, Values]
) -> list[Slicing]:
    """Group the targets by the length of their sessions and by their items' age and popularity.

    Args:
        targets: of all windows.
        windows: number of each target's window, from 0 on.
        own: the run's metric of each target.
        others: the same of each baseline or run beside it.
    """
    values = {"": own, **others}
    return [
        Slicing(title, list(_slices(labels, codes, windows, values)))
        for title, labels, codes in (
            ("Items of the session before the target", *_grouped(targets.n_before, _LENGTHS, "")),
            (
                "Age of the target's item when the window begins",
                *_grouped(targets.age, _AGES, _NEW),
            ),
            (
                "Popularity of the target's item in the window before",
                *_grouped(targets.popularity, _RANKS, ""),
            ),
        )
    ]


def _grouped(
    values: Ints | Floats, groups: Sequence[tuple[int, str]], below: str
) -> tuple[list[str], Ints]:
    """Return labels of groups, and the group of each value; the first is below all lower ends."""
    ends = np.array([end for end, _ in groups])
    return [below, *(label for _, label in groups)], np.searchsorted(ends, values, side="right")


def _slices(
    labels: Sequence[str], codes: Ints, windows: Ints, values: Mapping[str, Values]
) -> Iterator[Slice]:
    n_windows = int(windows.max()) + 1
    cells, size = codes * n_windows + windows, len(labels) * n_windows

    def by_cell(weights: Values | None) -> Values:
        return np.bincount(cells, weights, size).reshape(len(labels), n_windows).astype(np.float64)

    counts, (own, *rest) = by_cell(None), (by_cell(each) for each in values.values())
    others = dict(zip(list(values)[1:], rest, strict=True))
    for row, label in enumerate(labels):
        n_targets = int(counts[row].sum())
        if n_targets:
            yield Slice(
                label=label,
                n_targets=n_targets,
                share=n_targets / len(codes),
                value=float(own[row].sum() / n_targets),
                others={name: float(each[row].sum() / n_targets) for name, each in others.items()},
                tests={
                    name: clustered_difference(own[row] - each[row], counts[row])
                    for name, each in others.items()
                },
            )
