"""`dayahead summary`: the averages of the last run."""

import json
from typing import Annotated

import typer

from dayahead.config.params import load_params
from dayahead.core.project import project_root


def summary(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Print the average over days (AOD) of results/ beside those of the counting baselines."""
    from dayahead.aggregate.summary import summarize_run

    root = project_root()
    found = summarize_run(load_params(root / "params.yaml"), root)
    print(json.dumps(found.as_json()) if as_json else found.text())
