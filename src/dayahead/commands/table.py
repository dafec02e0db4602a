"""`dayahead table`: runs by metrics, for a paper or a page."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dayahead.commands.completion import complete_row
from dayahead.config.params import load_params
from dayahead.core.files import write_text
from dayahead.core.project import project_root


def table(  # noqa: PLR0913, PLR0917
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="DVC experiments, Git revisions, MLflow run ids or results folders. Those with "
            "equal settings but the seed are a row; so are RUN,RUN and NAME=RUN,RUN.",
            autocompletion=complete_row,
        ),
    ],
    format_: Annotated[
        Literal["markdown", "latex", "csv"],
        typer.Option("--format", help="LaTeX uses booktabs; csv has all digits."),
    ] = "markdown",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Columns, such as ndcg_at_20,recall_at_5; otherwise those of evaluation.cutoffs."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Row that the others are tested against; otherwise the best."),
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Print half of the 95 % interval too.")
    ] = False,
    level: Annotated[float, typer.Option(help="Level of the tests, adjusted by Holm.")] = 0.05,
    names: Annotated[
        Literal["runs", "settings"],
        typer.Option(help="What rows are called: runs, or the settings in which they differ."),
    ] = "runs",
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Print the averages over windows (AOD) of runs as a table, with marks of significance."""
    from dayahead.comparison.table import result_table
    from dayahead.comparison.table_formats import formatted
    from dayahead.metrics.metrics import metric_names

    if not 0 < level < 1:
        raise typer.BadParameter(f"{level} is not between 0 and 1", param_hint="--level")
    chosen = (
        [name.strip() for name in metrics.split(",")]
        if metrics is not None
        else metric_names(load_params(project_root() / "params.yaml").evaluation.cutoffs)
    )
    found = result_table(runs, chosen, baseline, level, names)
    text = formatted(found, format_, has_intervals=intervals)
    if output is None:
        print(text, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, text)
    print(f"{output}: {len(found.rows)} rows of {sum(len(row.runs) for row in found.rows)} runs")
