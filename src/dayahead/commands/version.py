"""`dayahead --version`."""

from importlib.metadata import version
from typing import Annotated

import typer


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"dayahead {version('dayahead')}")
        raise typer.Exit


def dayahead(
    *,
    is_wanted: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Train a next-item recommender on each day's sessions and evaluate it on the next day's."""
