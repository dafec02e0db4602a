"""What the lists of a run show, on average over its windows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from dayahead.config.metric_names import OF_LISTS
from dayahead.core.errors import DataError
from dayahead.metrics.lists import DIVERSITY_OF_VECTORS, RANGES
from dayahead.outputs.lists import LISTS, ListRow, mean_figures, read_lists
from dayahead.statistics.intervals import Interval, mean_interval

TITLES: Final = {
    "coverage": "Items shown, share of those that could be (coverage)",
    "gini": "Concentration on few items (Gini index)",
    "novelty": "Novelty, bits",
    "popularity": "Popularity, share of earlier clicks",
    "popularity_ratio": "Popularity, times that of clicks",
    "diversity": "Difference of pairs in {by} (diversity)",
    "new": "New items, share of places",
    "own": "Items of the session, share of places",
    "repeats": "Items shown in the window before, share of places",
}
"""Rows of the table in the report, by metric."""


@dataclass(frozen=True)
class ListAverage:
    """The content of lists.json."""

    aod: dict[str, float] = field(default_factory=dict)
    """Unweighted mean over the windows that have the figure; empty where no lists were counted."""
    ci95: dict[str, Interval | None] = field(default_factory=dict)
    """As in aod.json."""
    n_windows: int = 0

    @property
    def cutoffs(self) -> list[int]:
        """Lengths of lists, ascending."""
        return sorted({int(name.split("_at_")[1]) for name in self.aod if "_at_" in name})

    def table(self, diversity_by: object) -> Iterator[tuple[str, list[str], str | None]]:
        """Yield the rows of the report: title, figures by cutoff, and that of clicks, by name."""
        theirs = dict.fromkeys(_kind(name) for name in self.aod if "_at_" in name)
        for name in dict.fromkeys([*OF_LISTS, *theirs]):
            names = [f"{name}_at_{k}" for k in self.cutoffs]
            if names and all(each in self.aod for each in names):
                clicked = f"clicked_{name}"
                title = TITLES.get(name, name).format(by=diversity_by)
                yield title, names, clicked if clicked in self.aod else None


def average_lists(results: Path, windows: Sequence[str], *, by_vector: bool = False) -> ListAverage:
    """Average lists.csv over the evaluated windows; `by_vector`: diversity is that of cosines.

    Raises:
        DataError: it is missing or damaged, or it has windows that were not evaluated.
    """
    rows = read_lists(results)
    unknown = sorted({row.window for row in rows} - {*windows})
    if unknown:
        raise DataError(
            f"{results / LISTS}: expected the windows of windows.csv, found {unknown[0]} too; run "
            f"`dvc repro -f train`"
        )
    ranges = RANGES | ({"diversity": DIVERSITY_OF_VECTORS} if by_vector else {})
    return _average(rows, ranges) if rows else ListAverage()


def _average(rows: Sequence[ListRow], ranges: Mapping[str, tuple[float, float]]) -> ListAverage:
    aod = dict(mean_figures(rows))
    values = {name: [row.figures[name] for row in rows] for name in aod}
    unknown = -inf, inf  # of metrics of other packages
    ci95 = {
        name: mean_interval(
            [each for each in of if each is not None], *ranges.get(_kind(name), unknown)
        )
        for name, of in values.items()
    }
    return ListAverage(aod, ci95, len(rows))


def _kind(name: str) -> str:
    return name.removeprefix("clicked_").split("_at_")[0]
