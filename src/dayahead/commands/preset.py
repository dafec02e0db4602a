"""`dayahead preset`: the options that reproduce a published result."""

from typing import Annotated

import typer

from dayahead.core.project import project_root
from dayahead.presets import preset_names, preset_options


def preset(
    name: Annotated[
        str | None,
        typer.Argument(help="Data set and row, for example g1/xlnet-mlm."),
    ] = None,
) -> None:
    """Print the options of `dvc exp run` that reproduce a published result; without NAME, list."""
    root = project_root()
    if name is None:
        print("\n".join(preset_names(root / "presets")))
    else:
        print(" ".join(preset_options(name, root / "presets", root / "params.yaml")))
