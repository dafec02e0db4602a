"""`dayahead tune`: search for better settings."""

import logging
from typing import Annotated

import typer

from dayahead.core.project import project_root
from dayahead.presets import search_names


def tune(
    space: Annotated[
        str | None,
        typer.Argument(help="A name in searches/, or a YAML file; without it, list the names."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study in all.")] = 20,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Trials at a time.")] = 1,
    study: Annotated[
        str | None, typer.Option(help="Name of the study; otherwise that of the space.")
    ] = None,
    set_param: Annotated[
        list[str] | None,
        typer.Option("-S", "--set-param", help="A setting of every trial, as of dvc exp run."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Column of results/windows.csv to maximise the mean of.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is tried.")] = 1,
) -> None:
    """Search for settings with a higher AOD on valid; run it again to go on.

    Each trial is a DVC experiment. The best settings become a preset.
    """
    root = project_root()
    if space is None:
        print("\n".join(search_names(root / "searches")))
        return
    from dayahead.tune.search import SearchOptions, search, summarize

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options = SearchOptions(
        space=space,
        study=study,
        n_trials=trials,
        n_jobs=jobs,
        metric=metric,
        seed=seed,
        overrides=set_param or [],
    )
    print(summarize(search(options, root)))
