"""results/lists.csv: what the lists of a run show, window by window."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dayahead.core.columns import WINDOW
from dayahead.core.files import write_csv
from dayahead.metrics.lists import Figures
from dayahead.metrics.metrics import mean
from dayahead.outputs.tables import reading

LISTS: Final = "lists.csv"
_HEAD: Final = (WINDOW, "n_lists", "n_items")


@dataclass(frozen=True)
class ListRow:
    """A row of lists.csv: what the lists of a window show."""

    window: str
    n_lists: int
    n_items: int
    """Items that a list could show."""
    figures: Figures
    """By the names of `figure_names`."""


def start_lists(results: Path, names: Sequence[str]) -> None:
    """Write lists.csv without a row; `names` are those of its figures."""
    write_csv(results / LISTS, [(*_HEAD, *names)])


def add_lists(results: Path, row: ListRow) -> None:
    """Add a row; floats read back as the same floats."""
    values = (row.window, row.n_lists, row.n_items, *row.figures.values())
    write_csv(results / LISTS, [values], is_longer=True)


def read_lists(results: Path) -> list[ListRow]:
    """Read lists.csv; no rows where evaluation.lists is 0.

    Raises:
        DataError: the file is missing, has other columns or a value that is no number.
    """
    path = results / LISTS
    expected = f"the columns {', '.join(_HEAD)} and figures"
    with reading(path, expected), path.open(newline="") as file:
        reader = csv.DictReader(file)
        head = reader.fieldnames or ()
        if tuple(head[: len(_HEAD)]) != _HEAD:
            raise ValueError(f"found {', '.join(head) or 'nothing'}")
        names = list(head[len(_HEAD) :])
        return [
            ListRow(
                window=row[WINDOW],
                n_lists=int(row["n_lists"]),
                n_items=int(row["n_items"]),
                figures={name: float(row[name]) for name in names},
            )
            for row in reader
        ]


def mean_figures(rows: Sequence[ListRow]) -> dict[str, float]:
    """Return the mean of each figure over one window or more."""
    return {name: mean([row.figures[name] for row in rows]) for name in rows[0].figures}
