"""What the lists of a run show, on average over its windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dayahead.config.metric_names import OF_LISTS
from dayahead.core.errors import DataError
from dayahead.metrics.lists import RANGES
from dayahead.outputs.lists import LISTS, mean_figures, read_lists
from dayahead.statistics.intervals import Interval, mean_interval

TITLES: Final = {
    "coverage": "Items shown, share of those that could be (coverage)",
    "gini": "Concentration on few items (Gini index)",
    "novelty": "Novelty, bits",
    "popularity": "Popularity, share of earlier clicks",
    "new": "New items, share of places",
    "own": "Items of the session, share of places",
}
"""Rows of the table in the report, by metric."""


@dataclass(frozen=True)
class ListAverage:
    """The content of lists.json."""

    aod: dict[str, float] = field(default_factory=dict)
    """Unweighted mean over the windows; empty where no lists were counted."""
    ci95: dict[str, Interval | None] = field(default_factory=dict)
    """As in aod.json."""
    n_windows: int = 0

    @property
    def cutoffs(self) -> list[int]:
        """Lengths of lists, ascending."""
        return sorted({int(name.split("_at_")[1]) for name in self.aod})

    def table(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the rows of the report: title, and names of the figures by cutoff."""
        for name in OF_LISTS if self.cutoffs else ():
            yield TITLES[name], [f"{name}_at_{k}" for k in self.cutoffs]


def average_lists(results: Path, windows: Sequence[str]) -> ListAverage:
    """Average lists.csv over the evaluated windows.

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
    if not rows:
        return ListAverage()
    aod = mean_figures(rows)
    ci95 = {
        name: mean_interval([row.figures[name] for row in rows], *RANGES[name.split("_at_")[0]])
        for name in aod
    }
    return ListAverage(aod, ci95, len(rows))
