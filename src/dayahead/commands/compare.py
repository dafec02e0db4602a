"""`dayahead compare`: a paired test between two settings."""

from typing import Annotated

import typer

from dayahead.commands.completion import complete_runs
from dayahead.config.params import load_params
from dayahead.core.project import project_root

_RUNS = "DVC experiments, Git revisions, MLflow run ids or results folders, separated by commas"


def compare(
    runs_a: Annotated[
        str,
        typer.Argument(
            metavar="A1,A2,...",
            help=f"Runs of one setting: {_RUNS}.",
            autocompletion=complete_runs,
        ),
    ],
    runs_b: Annotated[
        str,
        typer.Argument(
            metavar="B1,B2,...", help="Runs of the other.", autocompletion=complete_runs
        ),
    ],
) -> None:
    """Test which of two settings is better; windows are the unit, runs differ in their seeds."""
    from dayahead.comparison.runs import compare_runs
    from dayahead.comparison.summary import summarize

    cutoffs = load_params(project_root() / "params.yaml").evaluation.cutoffs
    comparison = compare_runs(runs_a.split(","), runs_b.split(","), cutoffs)
    print(summarize(comparison, runs_a, runs_b))
