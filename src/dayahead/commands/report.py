"""`dayahead report`: the report compared with other runs."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dayahead.config.params import flat_settings, load_params
from dayahead.core.files import write_text
from dayahead.core.project import project_root


def report(
    beside: Annotated[
        str,
        typer.Argument(
            metavar="RUN1,RUN2,...",
            help="DVC experiments, Git revisions, MLflow run ids or results folders.",
        ),
    ] = "HEAD",
    output: Annotated[Path, typer.Option(help="File to write.")] = Path("build/report.html"),
) -> None:
    """Write the report of results/ with other runs beside it, such as the last commit's."""
    from dayahead.aggregate.findings import Folders
    from dayahead.comparison.beside import page_beside
    from dayahead.comparison.runs import results_of_all

    root = project_root()
    params = load_params(root / "params.yaml")
    folders = Folders(root / "results", root / "data" / "windows", root / "data" / "raw")
    with tempfile.TemporaryDirectory() as scratch:
        runs = results_of_all(beside.split(","), Path(scratch))
        page = page_beside(folders, params.evaluation.cutoffs, flat_settings(params), runs)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, page)
    print(f"{output}: results/ beside {', '.join(runs)}")
