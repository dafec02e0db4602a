"""`dayahead recommend`: the next items of a session, or of all sessions of a file."""

import sys
from collections.abc import Mapping, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dayahead.core.errors import ConfigError
from dayahead.serve.request import N_REASONS, ColdStart, Options, parse_ids, parse_where

if TYPE_CHECKING:
    from dayahead.serve.recommender import Recommender

Session = Annotated[
    str | None,
    typer.Option(help="Item ids, oldest first, separated by commas; an id with a comma in quotes."),
]
Item = Annotated[
    list[str] | None, typer.Option(help="An item id, taken as it is; repeat it, oldest first.")
]
Events = Annotated[
    Path | None,
    typer.Option(
        help="CSV of the session's events (item_id, event_time, raw features), for models with "
        "side features."
    ),
]
Past = Annotated[
    Path | None, typer.Option(help="CSV of the user's earlier events, for models that read them.")
]
SessionsFile = Annotated[
    Path | None,
    typer.Option(
        "--sessions",
        help="Many sessions: parquet or CSV with session_id, item_id, event_time, raw features. A "
        "row is an event (those of a session together), or in parquet a session with lists.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(help="Parquet to write for --sessions: session_id, rank, item, score."),
]
TopK = Annotated[int, typer.Option(min=1, help="Number of items.")]
ExcludeSeen = Annotated[
    bool, typer.Option("--exclude-seen", help="Leave out the items of the session.")
]
Cold = Annotated[ColdStart, typer.Option(help="What answers if the model knows none of the ids.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="ATTRIBUTE=VALUE: only items with this value, of the data set's table of items; "
        "repeat it for other values or attributes."
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add the three strongest reasons (memory only).")
]
Models = Annotated[Path, typer.Option(help="Folder of the saved model.")]


def recommend(  # noqa: PLR0913, PLR0917
    session: Session = None,
    item: Item = None,
    events: Events = None,
    past: Past = None,
    sessions: SessionsFile = None,
    output: Output = None,
    top_k: TopK = 10,
    exclude_seen: ExcludeSeen = False,
    cold_start: Cold = "refuse",
    where: Where = None,
    explain: Explain = False,
    models: Models = Path("models"),
) -> None:
    """Print the most likely next items of a session, best first, or write those of a file."""
    if sum(given is not None for given in (session, item or None, events, sessions)) != 1:
        raise ConfigError(
            "recommend: give one of --session ID,ID,..., --item ID, --events FILE or --sessions "
            "FILE"
        )
    if past is not None and events is None:
        raise ConfigError("recommend: --past requires --events FILE, whose times define the past")
    if (sessions is None) != (output is None) or (sessions is not None and explain):
        raise ConfigError(
            "recommend: --sessions FILE and --output FILE go together, without --explain"
        )
    options = Options(
        top_k=top_k,
        cold_start=cold_start,
        exclude_seen=exclude_seen,
        where=parse_where(where or []),
    )
    if sessions is not None and output is not None:
        _write(models, sessions, output, options)
    else:
        ids = parse_ids(session) if session is not None else item or []
        _print(models, ids if events is None else events, past, options, explain=explain)


def _write(models: Path, sessions: Path, output: Path, options: Options) -> None:
    from tqdm import tqdm

    from dayahead.serve.recommender import Recommender
    from dayahead.serve.session_recommendations import recommend_file

    with tqdm(unit=" sessions", unit_scale=True, disable=None) as bar:

        def progress(n_sessions: int, share: float | None) -> None:
            # The total is an estimate, exact only if each row of the file is a session.
            bar.total = round(n_sessions / share) if share else None
            bar.update(n_sessions - bar.n)

        model = Recommender.load(models)
        summary = recommend_file(model, sessions, output, options, progress)
    say_unmatched(model, options)
    print(
        f"{output}: {summary.rows:,} recommendations for {summary.sessions:,} sessions, of which "
        f"{summary.cold:,} have no item that the model knows"
    )
    if summary.cold and options.cold_start == "refuse":
        message = "These have no rows; --cold-start popularity gives them the most popular items."
        print(message, file=sys.stderr)


def _print(
    models: Path, given: list[str] | Path, past: Path | None, options: Options, *, explain: bool
) -> None:
    from dayahead.serve.recommender import Recommender

    model = Recommender.load(models)
    log = model.read_events(given) if isinstance(given, Path) else model.events_of(given)
    before = None if past is None else model.read_events(past)
    top = model.recommend_after(
        log,
        options.top_k,
        before,
        cold_start=options.cold_start,
        exclude_seen=options.exclude_seen,
        where=options.where,
    )
    _print_unknown(model.unknown_items(log), len(log["item_id"].unique()))
    say_unmatched(model, options)
    items = [found for found, _ in top]
    _print_items(top, model.explain(log, items, before) if explain else [])


def _print_items(
    top: Sequence[tuple[int | str, float]], reasons: Sequence[Mapping[str, float]]
) -> None:
    for (found, score), named in zip(top, chain(map(_named, reasons), repeat("")), strict=False):
        print(f"{found}\t{score:.6f}{named}")


def _named(parts: Mapping[str, float]) -> str:
    from dayahead.outputs.evidence_names import plain_parts

    plain = plain_parts(parts).items()
    strongest = [f"{name} {value:+.2f}" for name, value in islice(plain, N_REASONS)]
    return "\t" + (", ".join(strongest) or "popularity")


def say_unmatched(model: "Recommender", options: Options) -> None:
    """Say on stderr which values of --where no item has."""
    items = model.known_items.items
    if items is not None and (message := items.unmatched(options.where)):
        print(f"--where: {message}", file=sys.stderr)


def _print_unknown(items: Sequence[int | str], n_items: int) -> None:
    if items:
        named = ", ".join(map(str, items))
        message = f"{len(items)} of {n_items} item ids are unknown to the model: {named}"
        print(message, file=sys.stderr)
