"""`dayahead compare`: a paired test between two settings."""

import json
from typing import Annotated

import typer

from dayahead.config.params import load_params
from dayahead.core.project import project_root

_RUNS = "DVC experiments, Git revisions, MLflow run ids or results folders, separated by commas"


def compare(
    runs_a: Annotated[
        str,
        typer.Argument(metavar="A1,A2,...", help=f"Runs of one setting: {_RUNS}."),
    ],
    runs_b: Annotated[
        str,
        typer.Argument(metavar="B1,B2,...", help="Runs of the other."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Test which of two settings is better; windows are the unit, runs differ in their seeds."""
    from dayahead.comparison.runs import compare_runs
    from dayahead.comparison.summary import json_of, summarize

    config = load_params(project_root() / "params.yaml").evaluation
    runs = runs_a.split(","), runs_b.split(",")
    comparison = compare_runs(*runs, config.cutoffs, config.metrics)
    if as_json:
        print(json.dumps(json_of(comparison, runs_a, runs_b)))
    else:
        print(summarize(comparison, runs_a, runs_b))
