"""Summary of a run for the terminal: its AOD next to those of the counting baselines."""

from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.config.params import Params
from dayahead.outputs.tables import mean_metrics, read_baselines, read_windows


def summarize_run(params: Params, root: Path) -> str:
    """Return a table of AOD by metric, the report's path and the next command.

    Args:
        params: settings of the run.
        root: project with results/.

    Raises:
        DataError: the results or those of a baseline are missing, or they disagree.
    """
    cutoffs, architecture = params.evaluation.cutoffs, params.model.architecture
    results = root / "results"
    rows = read_windows(results / "windows.csv", cutoffs)
    names = list(rows[0].metrics)
    tables = {
        architecture: rows,
        **read_baselines(results, architecture, rows, cutoffs, has_ticks=params.has_ticks),
    }
    table = [(name, *mean_metrics(found).values()) for name, found in tables.items()]
    lines = str(tabulate(table, ("AOD", *names), tablefmt="plain", floatfmt=".4f"))
    return (
        f"{lines}\n\n{len(rows)} windows evaluated. Report: {results / 'report.html'}\n"
        f"Next: dvc exp run --temp -n small -S model.n_layer=1, then dvc exp show"
    )
