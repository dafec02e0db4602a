"""`dayahead export`: a saved network for other servers."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from dayahead.core.errors import ConfigError

TOP_K = 100
Folder = Annotated[Path, typer.Argument(help="Folder to write, with export.json.")]
Format = Annotated[
    Literal["pt2", "onnx", "vectors", "hnsw"],
    typer.Option(
        "--format",
        help="torch.export's pt2, ONNX (`pip install --group onnx`), the item vectors as "
        "parquet, or these with an index of nearest neighbours (`pip install 'dayahead\\[hnsw]'`).",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(min=1, help=f"Number of items that pt2 and ONNX return; {TOP_K} by default."),
]
Models = Annotated[Path, typer.Option(help="Folder of the saved model.")]


def export(
    folder: Folder, format_: Format = "pt2", top_k: TopK = None, models: Models = Path("models")
) -> None:
    """Write a saved network as pt2 or ONNX, or its item vectors, with an index of them if wanted.

    The scores of pt2 and ONNX are compared with those of the saved model first.
    """
    if format_ in {"pt2", "onnx"}:
        from dayahead.serve.export import export_model

        with _exporters_silenced():
            written = export_model(models, folder, format_, top_k or TOP_K)
    elif top_k is not None:
        raise ConfigError("export: item vectors are written of every item; leave out --top-k")
    else:
        from dayahead.serve.item_vectors import export_vectors

        written = export_vectors(models, folder, with_index=format_ == "hnsw")
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
