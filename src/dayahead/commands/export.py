"""`dayahead export`: a saved network for other servers."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
    from dayahead.serve.export import export_model

    with _exporters_silenced():
        written = export_model(models, folder, format_, top_k)
    print(written)


@contextmanager
def _exporters_silenced() -> Iterator[None]:
    """Suppress the warnings of the exporters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
