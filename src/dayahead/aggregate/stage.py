"""From a run's windows to its averages, its report and the predecessor's files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dayahead.aggregate.averaging import Average, average
from dayahead.aggregate.report import Setting, render_report
from dayahead.aggregate.transformers4rec import write_predecessor_files
from dayahead.core.errors import DataError
from dayahead.core.files import write_json, write_text
from dayahead.metrics.metrics import mean
from dayahead.metrics.tables import (
    WindowRanks,
    WindowResult,
    ranked_windows,
    read_ranks,
    read_windows,
    window_result,
)
from dayahead.windows.folder import WindowFolder


def aggregate(
    results: Path, windows: Path, cutoffs: Sequence[int], settings: Mapping[str, Setting]
) -> Average:
    """Write aod.json, report.html and the predecessor's two files into `results`.

    Args:
        results: folder with windows.csv and ranks/.
        windows: folder with windows.json.
        cutoffs: lengths of the lists measured.
        settings: params.yaml flat (model.n_layer: 2), for the report.

    Raises:
        DataError: windows.csv and the ranks contradict each other, or a file is damaged.
        WindowError: windows.json cannot be read.
    """
    table = read_windows(results / "windows.csv", cutoffs)
    found = _ranks_of(table, results)
    rows = [
        window_result(row.window, ranks, cutoffs, row.train_loss, row.train_metrics)
        for row, ranks in zip(table, found, strict=True)
    ]
    _check_agreement(table, rows, results / "windows.csv")
    summary = average(rows, [each.ranks for each in found], cutoffs)
    listing = WindowFolder(windows).manifest
    write_json(results / "aod.json", asdict(summary))
    outside = mean(np.concatenate([each.ranks == 0 for each in found]))
    report = render_report(rows, summary, listing, settings, outside)
    write_text(results / "report.html", report)
    write_predecessor_files(results, rows, summary)
    return summary


def _ranks_of(table: Sequence[WindowResult], results: Path) -> list[WindowRanks]:
    windows = [row.window for row in table]
    one_sided = sorted(set(windows) ^ set(ranked_windows(results)))
    if one_sided:
        raise DataError(
            f"{results}: expected the same windows in windows.csv and ranks/, found in one of "
            f"them only: {', '.join(one_sided[:5])}; run `dvc repro -f train`"
        )
    return [read_ranks(results, window) for window in windows]


def _check_agreement(
    table: Sequence[WindowResult], rows: Sequence[WindowResult], path: Path
) -> None:
    for listed, counted in zip(table, rows, strict=True):
        figures = _figures(counted)
        for name, value in _figures(listed).items():
            if not math.isclose(value, figures[name], rel_tol=1e-9):
                raise DataError(
                    f"{path}: window {listed.window}: {name} is {value}, but the window's ranks "
                    f"give {figures[name]}; one of the two was changed: run `dvc repro -f train`"
                )


def _figures(result: WindowResult) -> dict[str, float]:
    counts = {"n_sessions": result.n_sessions, "target_outside": result.target_outside}
    return {**counts, **result.metrics}
