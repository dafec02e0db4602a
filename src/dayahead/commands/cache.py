"""`dayahead cache`: list, prune and share what is cached."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from tabulate import tabulate  # type: ignore[import-untyped]

from dayahead.commands.help_examples import epilog_of
from dayahead.core.cache import KINDS, Cache
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.fingerprints import package_version
from dayahead.core.project import cache_root, project_root

if TYPE_CHECKING:
    from dayahead.sharing.report import Report

app = typer.Typer(invoke_without_command=True)
_REMOTE = typer.Argument(help="Name of a DVC remote; without one, the default remote.")
_ALL_FITS = typer.Option(
    "--all-fits", help="Every cached fit of the study, not only the newest of each model."
)


@app.callback()
def list_cache(
    context: typer.Context,
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
    """List the cached results of finished work, their size and last use; share them."""
    if context.invoked_subcommand is not None:
        if prune is not None or undelivered:
            option = "--undelivered" if prune is None else "--prune"
            raise ConfigError(f"cache: {option} does not go with {context.invoked_subcommand}")
        return
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


@app.command("push", epilog=epilog_of("cache push"))
def push_cache(
    remote: Annotated[str | None, _REMOTE] = None,
    all_fits: Annotated[bool, _ALL_FITS] = False,
) -> None:
    """Send what the cache has of the study in params.yaml to a DVC remote."""
    from dayahead.sharing.push import push
    from dayahead.sharing.remote import open_remote
    from dayahead.sharing.study import is_cached, study_entries

    there = open_remote(project_root(), remote)
    study = study_entries(project_root())
    entries = study.select(is_cached, all_fits=all_fits)
    _print_report(push(cache_root(), there, entries), "sent", f"to {there.shown}")


@app.command("pull", epilog=epilog_of("cache pull"))
def pull_cache(
    remote: Annotated[str | None, _REMOTE] = None,
    all_fits: Annotated[bool, _ALL_FITS] = False,
) -> None:
    """Fetch what a DVC remote has of the study in params.yaml into the cache."""
    from dayahead.sharing.pull import pull
    from dayahead.sharing.remote import open_remote
    from dayahead.sharing.study import DATA, is_cached, study_entries
    from dayahead.train.cache_keys import PACKAGES

    root = project_root()
    there = open_remote(root, remote)
    study = study_entries(root)
    entries = study.select(lambda entry: is_cached(entry) or entry in there, all_fits=all_fits)
    data = [root / folder for folder in DATA]
    _print_report(pull(cache_root(), there, entries, data), "fetched", f"from {there.shown}")
    if study.fits and not any(kind == "fits" for kind, _ in entries):
        versions = ", ".join(f"{name} {package_version(name)}" for name in PACKAGES)
        print(
            f"no fit of this study is there: the next run that trains fits every window. Fits are "
            f"found by settings, code and packages, here {versions}"
        )


def _print_report(report: "Report", verb: str, where: str) -> None:
    print(report.table(verb), where, sep="\n")
    if report.refused:
        lines = [f"{kind}/{key}: {reason}" for (kind, key), reason in report.refused.items()]
        raise DataError(f"{len(lines)} entries were left out:\n  " + "\n  ".join(sorted(lines)))
