"""`dayahead estimate`: the time and memory that a study needs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dayahead.config.params import load_params
from dayahead.core.project import project_root


def estimate(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Say how long the study in params.yaml will train and how much memory it needs."""
    from dayahead.train.calibration import calibrate
    from dayahead.train.estimate import estimate
    from dayahead.train.study import Study

    root = project_root()
    params = load_params(root / "params.yaml")
    study = Study(params=params, windows=root / "data" / "windows", results=Path("unused"))
    found = estimate(study, calibrate(study))
    print(json.dumps(found.as_json()) if as_json else found.text())
