"""`dayahead compare`: a paired test between two settings."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dayahead.config.params import load_params
from dayahead.core.errors import ComparisonError
from dayahead.core.project import project_root

_RUNS = "DVC experiments, Git revisions, MLflow run ids or results folders, separated by commas"


def compare(
    runs_a: Annotated[
        str, typer.Argument(metavar="A1,A2,...", help=f"Runs of one setting: {_RUNS}.")
    ],
    runs_b: Annotated[str, typer.Argument(metavar="B1,B2,...", help="Runs of the other.")],
) -> None:
    """Test which of two settings is better; windows are the unit, runs differ in their seeds."""
    from dayahead.compare.paired_tests import compare as compare_results
    from dayahead.compare.summary import summarize

    cutoffs = load_params(project_root() / "params.yaml").evaluation.cutoffs
    with tempfile.TemporaryDirectory() as scratch:
        a = _results_of_all(runs_a, Path(scratch) / "a")
        b = _results_of_all(runs_b, Path(scratch) / "b")
        comparison = compare_results(a, b, cutoffs)
    print(summarize(comparison, runs_a, runs_b))


def _results_of_all(runs: str, into: Path) -> list[Path]:
    from dayahead.tracking.run_lookup import results_of

    names = [name.strip() for name in runs.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise ComparisonError(
            f"compare: {runs!r}: expected different runs, separated by commas, such as A1,A2,A3"
        )
    return [results_of(name, into / str(number)) for number, name in enumerate(names)]
