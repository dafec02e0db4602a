"""What the lists of a run show: results/lists.csv, and results/shown/<window>.parquet."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import POSITION, WINDOW
from dayahead.core.files import write_csv, write_parquet
from dayahead.metrics.lists import Figures, Shown
from dayahead.metrics.metrics import mean
from dayahead.outputs.tables import reading

LISTS: Final = "lists.csv"
SHOWN: Final = "shown"
_HEAD: Final = (WINDOW, "n_lists", "n_items")
_SCHEMA: Final = pa.schema(
    [
        pa.field("item", pa.int32(), nullable=False),  # catalogue index
        pa.field(POSITION, pa.int32(), nullable=False),  # 1 is best
        pa.field("lists", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ListRow:
    """A row of lists.csv: what the lists of a window show."""

    window: str
    n_lists: int
    n_items: int
    """Items that a list could show."""
    figures: Figures
    """By the names of `figure_names`; None where there is no value."""


def start_lists(results: Path, names: Sequence[str]) -> None:
    """Write lists.csv without a row; `names` are those of its figures."""
    write_csv(results / LISTS, [(*_HEAD, *names)])


def add_lists(results: Path, row: ListRow) -> None:
    """Add a row; floats read back as the same floats, None is empty."""
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
                figures={name: float(row[name]) if row[name] else None for name in names},
            )
            for row in reader
        ]


def mean_figures(rows: Sequence[ListRow]) -> Mapping[str, float]:
    """Return the mean of each figure over the windows that have it; figures of none are left out.

    There is one row or more, each with the same figures.
    """
    values = {name: [row.figures[name] for row in rows] for name in rows[0].figures}
    found = {name: [each for each in of if each is not None] for name, of in values.items()}
    return {name: mean(of) for name, of in found.items() if of}


def write_shown(results: Path, window: str, shown: Shown) -> None:
    """Write how many lists of a window show an item at a position, by item and position."""
    row, position = shown.counts.nonzero()
    columns = [shown.items[row], position + 1, shown.counts[row, position]]
    table = pa.table([pa.array(each, pa.int32()) for each in columns], schema=_SCHEMA)
    write_parquet(_path(results, window), table)


def read_shown(results: Path, window: str) -> Shown:
    """Read what `write_shown` wrote, without what the sessions and attributes add.

    Raises:
        DataError: the file is missing, damaged or empty.
    """
    with reading(_path(results, window), "items, positions and lists"):
        table = pq.ParquetFile(_path(results, window)).read()
        items, row = np.unique(table["item"].to_numpy(), return_inverse=True)
        position, lists = (table[name].to_numpy() for name in (POSITION, "lists"))
        counts = np.zeros((len(items), position.max()), np.int64)
        counts[row, position - 1] = lists
    return Shown(int(counts[:, 0].sum()), items, counts, np.zeros(counts.shape[1], np.int64))


def _path(results: Path, window: str) -> Path:
    return results / SHOWN / f"{window}.parquet"
