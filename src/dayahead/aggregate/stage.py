"""The stage `aggregate`: averages over the windows, the report, the Transformers4Rec export."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dayahead.aggregate.averaging import Average, average
from dayahead.aggregate.differences import compare_with_baseline
from dayahead.aggregate.report import Findings, Setting, render_report
from dayahead.core.errors import DataError
from dayahead.core.files import write_json, write_text, written_whole
from dayahead.core.phases import phase, read_phases
from dayahead.metrics.metrics import mean
from dayahead.metrics.tables import (
    WindowRanks,
    WindowResult,
    ranked_windows,
    read_baselines,
    read_evidence,
    read_ranks,
    read_windows,
    window_result,
)
from dayahead.windows.folder import WindowFolder


def aggregate(
    results: Path, windows: Path, cutoffs: Sequence[int], settings: Mapping[str, Setting]
) -> Average:
    """Write aod.json, report.html and the Transformers4Rec export into `results`.

    `results` is as `train` writes it, `windows` has windows.json; `settings` are params.yaml,
    flat: {"model.n_layer": 2, ...}, for the report.

    Raises:
        DataError: windows.csv disagrees with the ranks or with a baseline's table, or a file is
            damaged.
        WindowError: windows.json cannot be read.
    """
    table = read_windows(results / "windows.csv", cutoffs)
    with phase("read"):
        evaluated = _ranks_of(table, results)
    rows = [
        window_result(row.window, ranks, cutoffs, row.train_loss, row.train_metrics)
        for row, ranks in zip(table, evaluated, strict=True)
    ]
    _check_agreement(table, rows, results / "windows.csv")
    with phase("average"):
        summary = average(rows, [found.ranks for found in evaluated], cutoffs)
    tables = read_baselines(results, str(settings["model.architecture"]), rows, cutoffs)
    manifest = WindowFolder(windows).manifest
    profile = results / "profile" / "phases.csv"
    findings = Findings(
        rows=rows,
        summary=summary,
        outside=mean(np.concatenate([found.ranks == 0 for found in evaluated])),
        baselines=[compare_with_baseline(rows, name, table) for name, table in tables.items()],
        evidence=read_evidence(results / "evidence.csv"),
        profile=read_phases(profile) if profile.exists() else (),
    )
    write_json(results / "aod.json", asdict(summary))
    with phase("report"):
        write_text(results / "report.html", render_report(findings, manifest, settings))
    _export_transformers4rec(results, rows, summary)
    return summary


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
                    f"give {expected[name]}; one of the files was changed: run "
                    f"`dvc repro -f train`"
                )


def _numbers(row: WindowResult) -> dict[str, float]:
    return {"n_sessions": row.n_sessions, "target_outside": row.target_outside, **row.metrics}


def _export_transformers4rec(results: Path, rows: Sequence[WindowResult], summary: Average) -> None:
    """Write the two result files of Transformers4Rec under the names that its users know."""
    lines = [f"{name}_AOD = {value:.6f}\n" for name, value in summary.aod.items()]
    write_text(results / "eval_results_avg_over_days.txt", "".join(lines))
    trained = list(summary.aod) if any(row.train_metrics for row in rows) else []
    head = [f"eval_{name}" for name in summary.aod] + [f"train_{name}" for name in trained]
    path = results / "eval_train_results_dates.csv"
    with written_whole(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["date", *head, "train_loss"])
        for row in rows:
            train = (row.train_metrics.get(name) for name in trained)
            writer.writerow([row.window, *row.metrics.values(), *train, row.train_loss])
