"""`dayahead recommend`: the next items of a session."""

import sys
from collections.abc import Mapping, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated

import typer

from dayahead.core.errors import ConfigError
from dayahead.serve.request import ColdStart, parse_ids

N_REASONS = 3


def recommend(  # noqa: PLR0913, PLR0917
    session: Annotated[
        str | None,
        typer.Option(
            help="Item ids, oldest first, separated by commas; an id with a comma in quotes."
        ),
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option(help="An item id, taken as it is; repeat it, oldest first.")
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="CSV of the session's events (item_id, event_time, raw features), for models "
            "with side features."
        ),
    ] = None,
    past: Annotated[
        Path | None,
        typer.Option(help="CSV of the user's earlier events, for models that read them."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Number of items.")] = 10,
    exclude_seen: Annotated[
        bool, typer.Option("--exclude-seen", help="Leave out the items of the session.")
    ] = False,
    cold_start: Annotated[
        ColdStart, typer.Option(help="What answers if the model knows none of the ids.")
    ] = "refuse",
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the three strongest reasons (memory only).")
    ] = False,
    models: Annotated[Path, typer.Option(help="Folder of the saved model.")] = Path("models"),
) -> None:
    """Print the most likely next items of a session with their scores, best first."""
    if sum(given is not None for given in (session, item or None, events)) != 1:
        raise ConfigError("recommend: give one of --session ID,ID,..., --item ID or --events FILE")
    if past is not None and events is None:
        raise ConfigError("recommend: --past requires --events FILE, whose times define the past")
    from dayahead.serve.recommender import Recommender

    ids = parse_ids(session) if session is not None else item or []
    model = Recommender.load(models)
    log = model.events_of(ids) if events is None else model.read_events(events)
    before = None if past is None else model.read_events(past)
    top = model.recommend_after(
        log, top_k, before, cold_start=cold_start, exclude_seen=exclude_seen
    )
    _print_unknown(model.unknown_items(log), len(log["item_id"].unique()))
    items = [found for found, _ in top]
    _print_items(top, model.explain(log, items, before) if explain else [])


def _print_items(
    top: Sequence[tuple[int | str, float]], reasons: Sequence[Mapping[str, float]]
) -> None:
    for (found, score), named in zip(top, chain(map(_named, reasons), repeat("")), strict=False):
        print(f"{found}\t{score:.6f}{named}")


def _named(parts: Mapping[str, float]) -> str:
    strongest = [f"{name} {value:+.2f}" for name, value in islice(parts.items(), N_REASONS)]
    return "\t" + (", ".join(strongest) or "popularity")


def _print_unknown(items: Sequence[int | str], n_items: int) -> None:
    if items:
        named = ", ".join(map(str, items))
        message = f"{len(items)} of {n_items} item ids are unknown to the model: {named}"
        print(message, file=sys.stderr)
