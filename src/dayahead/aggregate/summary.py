"""Summary of a run: its AOD next to those of the counting baselines, the report, the next step."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.config.locked_settings import committed_dataset
from dayahead.config.params import Params
from dayahead.outputs.tables import mean_metrics, read_baselines, read_windows

FIRST_EXPERIMENT = "dvc exp run --temp -n small -S model.n_layer=1, then make experiments"


@dataclass(frozen=True)
class RunSummary:
    """The averages over days of a run."""

    averages: Mapping[str, Mapping[str, float]]
    """AOD by metric, by model: the run's own first, then the counting baselines'."""
    n_windows: int
    report: Path

    def text(self, next_step: str = FIRST_EXPERIMENT) -> str:
        """Return a table of AOD by metric, the report's path and the next step."""
        names = next(iter(self.averages.values()))
        rows = [(name, *metrics.values()) for name, metrics in self.averages.items()]
        table = tabulate(rows, ("AOD", *names), tablefmt="plain", floatfmt=".4f")
        return (
            f"{table}\n\n{self.n_windows} windows evaluated. Report: {self.report}\n"
            f"Next: {next_step}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `dayahead summary --json` prints."""
        return {"windows": self.n_windows, "aod": self.averages, "report": str(self.report)}


def summarize_run(params: Params, root: Path) -> RunSummary:
    """Read the averages of a run.

    Args:
        params: settings of the run.
        root: project with results/.

    Raises:
        DataError: the results or those of a baseline are missing, or they disagree.
    """
    config, architecture = params.evaluation, params.model.architecture
    results = root / "results"
    rows = read_windows(results / "windows.csv", config.cutoffs, config.metrics)
    tables = {
        architecture: rows,
        **read_baselines(results, architecture, rows, has_ticks=params.has_ticks),
    }
    averages = {name: mean_metrics(found) for name, found in tables.items()}
    return RunSummary(averages, len(rows), results / "report.html")


def experiment_summary(params: Params, folder: Path) -> str | None:
    """Return the summary that ends `dvc exp run` in a folder; None outside of an experiment.

    DVC names the experiment and the project to its stages; with --temp `folder` is a copy of the
    project, which is removed afterwards.
    """
    name, project = os.environ.get("DVC_EXP_NAME"), os.environ.get("DVC_ROOT")
    if not name or not project:
        return None
    found = summarize_run(params, folder)
    is_comparable = committed_dataset(Path(project)) == params.dataset
    steps = f"make experiments; dayahead compare HEAD {name}" if is_comparable else ""
    if Path(project).resolve() == folder.resolve():
        commit = "git add params.yaml dvc.lock datasets; git commit"
        return found.text(f"{steps}; {commit}" if steps else f"{commit}; {FIRST_EXPERIMENT}")
    steps = steps or f"dvc exp apply {name}; git add params.yaml dvc.lock datasets; git commit"
    report = f"after dvc exp apply {name}, {Path(project) / 'results' / 'report.html'}"
    return found.text(steps).replace(str(found.report), report)
