"""The two result files of Transformers4Rec, under their names there."""

from collections.abc import Sequence
from pathlib import Path

from dayahead.aggregate.averaging import Average
from dayahead.core.files import write_csv, write_text
from dayahead.outputs.tables import WindowResult


def export_transformers4rec(results: Path, rows: Sequence[WindowResult], summary: Average) -> None:
    """Write the averages over windows, and the metrics of each."""
    lines = [f"{name}_AOD = {value:.6f}\n" for name, value in summary.aod.items()]
    write_text(results / "eval_results_avg_over_days.txt", "".join(lines))
    trained = list(summary.aod) if any(row.train_metrics for row in rows) else []
    names = [f"eval_{name}" for name in summary.aod] + [f"train_{name}" for name in trained]
    table: list[list[object]] = [["date", *names, "train_loss"]]
    for row in rows:
        train = (row.train_metrics.get(name) for name in trained)
        table.append([row.window, *row.metrics.values(), *train, row.train_loss])
    write_csv(results / "eval_train_results_dates.csv", table)
