"""`dayahead cache`: list and prune what is cached."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.core.cache import KINDS, Cache
from dayahead.core.errors import ConfigError
from dayahead.core.project import cache_root


def cache(
    prune: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="Remove entries not used for this many days, and records that trackers have.",
        ),
    ] = None,
    undelivered: Annotated[
        bool,
        typer.Option("--undelivered", help="With --prune: records that no tracker has, too."),
    ] = False,
) -> None:
    """List the cached results of finished work, their size and last use."""
    if prune is not None:
        _prune(prune, undelivered=undelivered)
    elif undelivered:
        raise ConfigError("cache: --undelivered goes with --prune DAYS only")
    rows = []
    for kind, content in KINDS.items():
        entries = Cache(cache_root() / kind).entries()  # the one used last first
        days = [f"{datetime.fromtimestamp(entry.last_used, UTC):%Y-%m-%d}" for entry in entries]
        last_used = f"{days[-1]} to {days[0]}" if days else "-"
        size = sum(entry.n_bytes for entry in entries) / 2**20
        rows.append((kind, len(entries), size, last_used, content))
    head = ("kind", "entries", "MiB", "last used", "content")
    print(tabulate(rows, head, tablefmt="plain", intfmt=",", floatfmt=",.1f"))
    print(f"{sum(size for _, _, size, *_ in rows):,.1f} MiB in {cache_root()}")


def _prune(days: float, *, undelivered: bool) -> None:
    from dayahead.tracking.pruning import prune_outboxes

    before = time.time() - days * 86_400
    n_removed = sum(Cache(cache_root() / kind).prune(before) for kind in KINDS)
    print(f"{n_removed:,} entries removed that were not used for {days:g} days")
    outboxes = prune_outboxes(before, undelivered=undelivered)
    print(f"{len(outboxes.removed):,} outboxes of as old runs removed")
    for path, trackers in outboxes.undelivered.items():
        print(
            f"{path}: kept, for {', '.join(trackers)} has not all of its records; "
            f"`dayahead track --sync` sends them, --undelivered removes them"
        )
    for path in outboxes.running:
        print(f"{path}: kept, for a process is at work on it")
