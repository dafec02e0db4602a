"""`dayahead table`: runs by metrics, for a paper or a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.core.files import write_text
from dayahead.core.project import project_root

if TYPE_CHECKING:
    from dayahead.comparison.table import ResultTable
    from dayahead.config.params import EvaluationConfig

Format = Annotated[
    Literal["markdown", "latex", "csv"],
    typer.Option("--format", help="LaTeX uses booktabs; csv has all digits."),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        help="Columns, such as ndcg_at_20,recall_at_5; otherwise those of the runs, by their "
        "evaluation.cutoffs and evaluation.metrics."
    ),
]
Baseline = Annotated[
    str | None, typer.Option(help="Row that the others are tested against; otherwise the best.")
]
Intervals = Annotated[
    bool, typer.Option("--intervals", help="Print half of the 95 % interval too.")
]
Level = Annotated[float, typer.Option(help="Level of the tests, which are adjusted by Holm.")]
Names = Annotated[
    Literal["runs", "settings"],
    typer.Option(help="What rows are called: runs, or the settings in which they differ."),
]
Output = Annotated[Path | None, typer.Option(help="File to write.")]


def table(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="DVC experiments, Git revisions, MLflow run ids or results folders. Those with "
            "equal settings but the seed are a row; so are RUN,RUN and NAME=RUN,RUN.",
        ),
    ],
    format_: Format = "markdown",
    metrics: Metrics = None,
    baseline: Baseline = None,
    intervals: Intervals = False,
    level: Level = 0.05,
    names: Names = "runs",
    output: Output = None,
) -> None:
    """Print the averages over windows (AOD) of runs as a table, with marks of significance."""
    from dayahead.comparison.rows import parse_row
    from dayahead.comparison.table import result_table
    from dayahead.comparison.table_formats import formatted

    check_level(level)
    given = [parse_row(run) for run in runs]
    found = result_table(given, chosen_metrics(metrics), baseline, level, names)
    show(found, formatted(found, format_, has_intervals=intervals), output)


def check_level(level: float) -> None:
    """Raise ConfigError unless a significance level is between 0 and 1."""
    if not 0 < level < 1:
        raise ConfigError(f"--level {level}: expected a number between 0 and 1, such as 0.05")


def show(found: "ResultTable", text: str, output: Path | None) -> None:
    """Print a table, or write it to a file."""
    if output is None:
        print(text, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, text)
    print(f"{output}: {len(found.rows)} rows of {sum(len(row.runs) for row in found.rows)} runs")


def chosen_metrics(names: str | None) -> "list[str] | EvaluationConfig":
    """Return the metrics of --metrics, or the section evaluation if there are none."""
    if names is not None:
        return [name.strip() for name in names.split(",")]
    return load_params(project_root() / "params.yaml").evaluation
