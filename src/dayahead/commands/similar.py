"""`dayahead similar`: the items most like some items."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from dayahead.commands.recommend import Where, say_unmatched
from dayahead.serve.request import Options, parse_where


def similar(
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Item ids.")],
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Items for each.")] = 10,
    by: Annotated[
        Literal["vectors", "pairs"] | None,
        typer.Option(
            help="vectors: cosine of a network's; pairs: what a counting model counted. By default "
            "pairs where the model has them."
        ),
    ] = None,
    where: Where = None,
    models: Annotated[Path, typer.Option(help="Folder of the saved model.")] = Path("models"),
) -> None:
    """Print the items most like each of some items: item, similar item, score."""
    from dayahead.serve.recommender import Recommender
    from dayahead.serve.similar import SimilarItems

    model = Recommender.load(models)
    finder, options = SimilarItems(model), Options(top_k=top_k, where=parse_where(where or []))
    found = finder.find(items, options, by)
    say_unmatched(model, options)
    print(f"by {finder.description(by)}", file=sys.stderr)
    for item, top in zip(items, found, strict=True):
        for other, score in top:
            print(f"{item}\t{other}\t{score:.6f}")
