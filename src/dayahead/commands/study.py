"""`dayahead study`: the rows of a table by seeds, as DVC experiments, and the table."""

import logging
from typing import Annotated

import typer

from dayahead.commands.completion import complete_study
from dayahead.commands.table import (
    Baseline,
    Format,
    Intervals,
    Level,
    Metrics,
    Output,
    check_level,
    chosen_metrics,
    show,
)
from dayahead.core.errors import TuneError
from dayahead.core.project import project_root
from dayahead.presets import search_names


def study(
    file: Annotated[
        str | None,
        typer.Argument(
            help="A name in studies/, or a YAML file; without it, list the names.",
            autocompletion=complete_study,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Runs at a time.")] = 1,
    format_: Format = "markdown",
    metrics: Metrics = None,
    baseline: Baseline = None,
    intervals: Intervals = False,
    level: Level = 0.05,
    output: Output = None,
) -> None:
    """Run all rows of a table with all seeds, and print it; run it again to go on.

    Each run is a DVC experiment; those that are there already are not repeated.
    """
    root = project_root()
    if file is None:
        print("\n".join(search_names(root / "studies")))
        return
    from dayahead.comparison.table import result_table
    from dayahead.comparison.table_formats import formatted
    from dayahead.studies.runs import run_study

    check_level(level)
    columns = chosen_metrics(metrics)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    done = run_study(file, root, jobs)
    if done.rows:
        found = result_table([*done.rows.items()], columns, baseline, level)
        show(found, formatted(found, format_, has_intervals=intervals), output)
    if done.failures:
        named = "; ".join(f"{run}: {error}" for run, error in done.failures.items())
        raise TuneError(
            f"{len(done.failures)} of {done.n_runs} runs failed and are not in the table: {named}. "
            f"The same command tries them again"
        )
