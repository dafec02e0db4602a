"""`dayahead profile`: where the time of one fit goes."""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from dayahead.config.loading import validated
from dayahead.config.machine import ProfileConfig
from dayahead.config.params import load_params
from dayahead.core.project import project_root


def profile(
    window: Annotated[
        str | None,
        typer.Option(help="Its fit is profiled; otherwise profile.window, or the third."),
    ] = None,
    first_step: Annotated[int | None, typer.Option(help="First step to trace.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps to trace.")] = None,
    into: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("build/profile"),
) -> None:
    """Profile one fit of the study and its evaluation; results/ stays as it is."""
    from dayahead.profile import profile_fit

    root = project_root()
    params = load_params(root / "params.yaml")
    options = {"window": window, "first_step": first_step, "steps": steps}
    given = {name: value for name, value in options.items() if value is not None}
    config = validated(ProfileConfig, asdict(params.profile) | given, "profile")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = profile_fit(replace(params, profile=config), root, into)
    print(f"Tables and traces are in {folder}; open a trace at https://ui.perfetto.dev")
