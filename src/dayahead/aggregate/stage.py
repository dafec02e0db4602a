"""The stage `aggregate`: averages over the windows, the report, the Transformers4Rec export."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dayahead.aggregate.averaging import Average
from dayahead.aggregate.findings import Findings, Folders, find
from dayahead.aggregate.page import render_page
from dayahead.config.changed_settings import Setting
from dayahead.config.metric_names import packaged_metrics
from dayahead.core.files import write_csv, write_json, write_text
from dayahead.core.phases import phase
from dayahead.outputs.run import RunResults
from dayahead.outputs.tables import WindowResult


def aggregate(
    folders: Folders, cutoffs: Sequence[int], settings: Mapping[str, Setting]
) -> Findings:
    """Write averages, the report and the Transformers4Rec export.

    Averages are those of metrics (aod.json) and of what lists show (lists.json).

    The folders are as `train`, `preprocess` and `download` write them; `settings` are params.yaml,
    flat: {"model.n_layer": 2, ...}, for the report.

    Raises:
        DataError: files of the results disagree, or one is damaged.
        WindowError: the windows cannot be read.
    """
    results = folders.results
    with phase("read"):
        own = RunResults.read(results, cutoffs, packaged_metrics(settings))
    findings = find(folders, own, settings)
    write_json(results / "aod.json", asdict(findings.summary))
    write_json(results / "lists.json", asdict(findings.lists))
    with phase("report"):
        write_text(results / "report.html", render_page(findings))
    _export_transformers4rec(results, own.rows, findings.summary)
    return findings


def _export_transformers4rec(results: Path, rows: Sequence[WindowResult], summary: Average) -> None:
    """Write the averages over windows and the metrics of each, as Transformers4Rec names them."""
    lines = [f"{name}_AOD = {value:.6f}\n" for name, value in summary.aod.items()]
    write_text(results / "eval_results_avg_over_days.txt", "".join(lines))
    trained = list(summary.aod) if any(row.train_metrics for row in rows) else []
    names = [f"eval_{name}" for name in summary.aod] + [f"train_{name}" for name in trained]
    table: list[list[object]] = [["date", *names, "train_loss"]]
    for row in rows:
        train = (row.train_metrics.get(name) for name in trained)
        table.append([row.window, *row.metrics.values(), *train, row.train_loss])
    write_csv(results / "eval_train_results_dates.csv", table)
