"""results/losses.csv: the loss within each fit."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dayahead.core.columns import WINDOW
from dayahead.core.files import write_csv
from dayahead.outputs.tables import reading

LOSSES: Final = "losses.csv"
_COLUMNS: Final = (WINDOW, "step", "loss")


def add_losses(
    results: Path, window: str, curve: Sequence[tuple[int, float]], *, is_first: bool
) -> None:
    """Add the rows of a window, named as in windows.csv; the first one starts the file.

    `curve` has the number of a step, and the mean loss since the one before it.
    """
    rows: list[Sequence[object]] = [(window, step, loss) for step, loss in curve]
    write_csv(results / LOSSES, [_COLUMNS, *rows] if is_first else rows, is_longer=not is_first)


def read_losses(results: Path) -> dict[str, list[tuple[int, float]]]:
    """Read losses.csv: step and loss by window.

    Raises:
        DataError: the file is missing, has other columns or a value that is no number.
    """
    path = results / LOSSES
    found: dict[str, list[tuple[int, float]]] = {}
    with reading(path, f"the columns {', '.join(_COLUMNS)}"), path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row[WINDOW], []).append((int(row["step"]), float(row["loss"])))
    return found
