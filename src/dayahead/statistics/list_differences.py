"""Two settings by what the lists of their runs show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dayahead.metrics.metrics import mean
from dayahead.outputs.lists import LISTS, ListRow, read_lists
from dayahead.statistics.differences import Difference, difference_test


@dataclass(frozen=True)
class ListComparison:
    """One figure of lists.csv of two settings, paired by windows."""

    name: str
    a: float
    """Mean of A over windows, equally weighted, and over its runs."""
    b: float
    test: Difference
    """No test of which is better: more coverage or less popularity is no aim in itself."""


def compare_lists(
    a: Sequence[Path], b: Sequence[Path], windows: Sequence[str]
) -> tuple[ListComparison, ...]:
    """Compare the figures that all runs have; none where a run has no lists.

    Args:
        a: folders of the runs of one setting.
        b: those of the other.
        windows: windows to compare, in order of time; those without a value of a figure in some
            run are left out for it.

    Raises:
        DataError: a lists.csv is damaged.
    """
    runs = [_rows_of(folder, windows) for folder in (*a, *b)]
    if not all(runs):
        return ()
    names = [
        name
        for name in runs[0][0].figures
        if "_at_" in name and all(name in rows[0].figures for rows in runs)
    ]
    found = (_compare(name, runs, len(a)) for name in names)
    return tuple(each for each in found if each is not None)


def _rows_of(folder: Path, windows: Sequence[str]) -> list[ListRow]:
    """Return the rows of these windows; none where one is missing, or the table is."""
    if not (folder / LISTS).exists():
        return []
    rows = {row.window: row for row in read_lists(folder)}
    return [rows[window] for window in windows] if {*windows} <= {*rows} else []


def _compare(name: str, runs: Sequence[Sequence[ListRow]], n_a: int) -> ListComparison | None:
    values = np.array([[row.figures[name] for row in rows] for rows in runs], np.float64)
    values = values[:, ~np.isnan(values).any(axis=0)]  # [runs, windows]
    if not values.shape[1]:
        return None
    a, b = values[:n_a], values[n_a:]
    means = mean(a.mean(axis=0)), mean(b.mean(axis=0))
    return ListComparison(name, *means, difference_test(a, b))
