"""`dayahead export`: a saved network for other servers."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Folder = Annotated[Path, typer.Argument(help="Folder to write, with export.json and vocabulary/.")]
Format = Annotated[
    Literal["pt2", "onnx"],
    typer.Option("--format", help="torch.export's pt2, or ONNX (`pip install --group onnx`)."),
]
TopK = Annotated[int, typer.Option(min=1, help="Number of items that it returns.")]
Models = Annotated[Path, typer.Option(help="Folder of the saved model.")]


def export(
    folder: Folder, format_: Format = "pt2", top_k: TopK = 100, models: Models = Path("models")
) -> None:
    """Write a saved network as pt2 or ONNX, once its scores equal those of the saved model."""
    import logging
    import warnings

    warnings.simplefilter("ignore")  # of the exporters, about what they trace
    logging.disable(logging.WARNING)

    from dayahead.serve.export import export_model

    print(export_model(models, folder, format_, top_k))
