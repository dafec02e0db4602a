"""What a run has found, for the terminal: its AOD beside those of the counting baselines."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.config.params import Params
from dayahead.core.errors import DataError
from dayahead.metrics.metrics import mean
from dayahead.metrics.tables import WindowResult, read_windows
from dayahead.train.run import Study
from dayahead.train.stage import train

BASELINES = ("popularity", "transitions")


def summarize_run(params: Params, root: Path) -> str:
    """Return a table of AOD by metric, the report's path and the next command.

    The baselines run the protocol over the same windows; they are cached as any run is.

    Args:
        params: of the run.
        root: project with data/windows and results/.

    Raises:
        DataError: the results are missing, or of other windows than the settings select.
    """
    cutoffs = params.evaluation.cutoffs
    results = root / "results"
    rows = read_windows(results / "windows.csv", cutoffs)
    names = list(rows[0].metrics)
    table = [(params.model.architecture, *_aod(rows, names))]
    for architecture in BASELINES:
        if architecture == params.model.architecture:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            train(_baseline(params, architecture, root, Path(scratch)))
            found = read_windows(Path(scratch) / "windows.csv", cutoffs)
        if [row.window for row in found] != [row.window for row in rows]:
            raise DataError(
                f"{results}: evaluated on other windows than params.yaml selects; run `dvc repro`"
            )
        table.append((architecture, *_aod(found, names)))
    lines = str(tabulate(table, ("AOD", *names), tablefmt="plain", floatfmt=".4f"))
    return (
        f"{lines}\n\n{len(rows)} windows evaluated. Report: {results / 'report.html'}\n"
        f"Next: dvc exp run --temp -n small -S model.n_layer=1, then dvc exp show"
    )


def _aod(rows: Sequence[WindowResult], names: Sequence[str]) -> list[float]:
    return [mean([row.metrics[name] for row in rows]) for name in names]


def _baseline(params: Params, architecture: str, root: Path, scratch: Path) -> Study:
    counted = replace(
        params,
        model=replace(params.model, architecture=architecture, features=(), past_length=0),
        training=replace(params.training, fit_last=False, loader="memory"),
        evaluation=replace(params.evaluation, predictions=0, train_sessions=0, attention_of=()),
        compute=replace(params.compute, processes=1, device="cpu", shard_items=False),
    )
    windows = root / "data" / "windows"
    return Study(params=counted, windows=windows, results=scratch, models=scratch / "models")
