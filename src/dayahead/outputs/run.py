"""The results of a run in its folder: a row and the ranks of each window, in agreement."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dayahead.core.errors import DataError
from dayahead.metrics.metrics import Ranks
from dayahead.outputs.tables import (
    WindowRanks,
    WindowResult,
    ranked_windows,
    read_ranks,
    read_windows,
    window_result,
)


@dataclass(frozen=True)
class RunResults:
    """Windows of a run in order of time."""

    rows: Sequence[WindowResult]
    ranks: Sequence[WindowRanks]

    @classmethod
    def read(
        cls, folder: Path, cutoffs: Sequence[int], packaged: Sequence[str] = ()
    ) -> "RunResults":
        """Read windows.csv and ranks/ of a results folder.

        Raises:
            ConfigError: a metric of another package fails.
            DataError: they disagree, or a file is missing or damaged.
        """
        table = read_windows(folder / "windows.csv", cutoffs, packaged)
        ranks = _ranks_of(table, folder)
        rows = [
            window_result(row.window, found, cutoffs, row.train_loss, row.train_metrics, packaged)
            for row, found in zip(table, ranks, strict=True)
        ]
        _check_agreement(table, rows, folder / "windows.csv")
        return cls(rows, ranks)

    @classmethod
    def of_ranks(
        cls, folder: Path, cutoffs: Sequence[int], packaged: Sequence[str] = ()
    ) -> "RunResults":
        """Compute the rows from the ranks in a folder, whatever the cutoffs of its windows.csv.

        Raises:
            DataError: there are none, or a file is damaged.
        """
        windows = ranked_windows(folder)
        ranks = [read_ranks(folder, window) for window in windows]
        rows = [
            window_result(window, found, cutoffs, None, {}, packaged)
            for window, found in zip(windows, ranks, strict=True)
        ]
        return cls(rows, ranks)

    @cached_property
    def every_rank(self) -> Ranks:
        """Ranks of all targets, window after window."""
        return np.concatenate([found.ranks for found in self.ranks])

    @cached_property
    def targets(self) -> Mapping[str, WindowRanks]:
        """Targets and their ranks by window."""
        return {row.window: each for row, each in zip(self.rows, self.ranks, strict=True)}

    @cached_property
    def by_window(self) -> Mapping[str, Ranks]:
        """Ranks by window."""
        return {window: each.ranks for window, each in self.targets.items()}


def _ranks_of(table: Sequence[WindowResult], results: Path) -> list[WindowRanks]:
    windows = [row.window for row in table]
    unpaired = sorted(set(windows) ^ set(ranked_windows(results)))
    if unpaired:
        raise DataError(
            f"{results}: expected the same windows in windows.csv and ranks/, found in only one "
            f"of them: {', '.join(unpaired[:5])}; run `dvc repro -f train`"
        )
    return [read_ranks(results, window) for window in windows]


def _check_agreement(
    table: Sequence[WindowResult], rows: Sequence[WindowResult], path: Path
) -> None:
    for listed, computed in zip(table, rows, strict=True):
        expected = _numbers(computed)
        for name, value in _numbers(listed).items():
            if not math.isclose(value, expected[name], rel_tol=1e-9):
                raise DataError(
                    f"{path}: window {listed.window}: {name} is {value}, but the window's ranks "
                    f"give {expected[name]}; one of the files was changed, or the package "
                    f"of the metric: run `dvc repro -f train`"
                )


def _numbers(row: WindowResult) -> dict[str, float]:
    return {"n_sessions": row.n_sessions, "target_outside": row.target_outside, **row.metrics}
