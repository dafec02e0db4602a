"""The command line: recommend, compare, preset, summary, profile, cache, track.

Verbs import torch, MLflow and DVC themselves: they take seconds, which the others need not pay.
"""

import logging
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dayahead.core.errors import (
    ComparisonError,
    ConfigError,
    DataError,
    TrackingError,
    exit_with_message,
)

if TYPE_CHECKING:
    from dayahead.sharing.report import Report

with exit_with_message():
    import typer
    from tabulate import tabulate  # type: ignore[import-untyped]

    from dayahead.config.params import load_params
    from dayahead.core.cache import KINDS, Cache
    from dayahead.core.project import cache_root, project_root
    from dayahead.presets import preset_names, preset_options
    from dayahead.serve.request import ColdStart, parse_ids

N_REASONS = 3
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
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


_RUNS = "DVC experiments, Git revisions, MLflow run ids or results folders, separated by commas"


@app.command()
def compare(
    runs_a: Annotated[
        str, typer.Argument(metavar="A1,A2,...", help=f"Runs of one setting: {_RUNS}.")
    ],
    runs_b: Annotated[str, typer.Argument(metavar="B1,B2,...", help="Runs of the other.")],
) -> None:
    """Test which of two settings is better; windows are the unit, runs differ in their seeds."""
    from dayahead.compare.paired_tests import compare as compare_results
    from dayahead.compare.summary import summarize

    cutoffs = load_params(project_root() / "params.yaml").evaluation.cutoffs
    with tempfile.TemporaryDirectory() as scratch:
        a = _results_of_all(runs_a, Path(scratch) / "a")
        b = _results_of_all(runs_b, Path(scratch) / "b")
        comparison = compare_results(a, b, cutoffs)
    print(summarize(comparison, runs_a, runs_b))


def _results_of_all(runs: str, into: Path) -> list[Path]:
    from dayahead.tracking.run_lookup import results_of

    names = [name.strip() for name in runs.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise ComparisonError(
            f"compare: {runs!r}: expected different runs, separated by commas, such as A1,A2,A3"
        )
    return [results_of(name, into / str(number)) for number, name in enumerate(names)]


@app.command()
def preset(
    name: Annotated[
        str | None, typer.Argument(help="Data set and row, for example g1/xlnet-mlm.")
    ] = None,
) -> None:
    """Print the options of `dvc exp run` that reproduce a published result; without NAME, list."""
    root = project_root()
    if name is None:
        print("\n".join(preset_names(root / "presets")))
    else:
        print(" ".join(preset_options(name, root / "presets", root / "params.yaml")))


@app.command()
def summary() -> None:
    """Print the average over days (AOD) of results/ beside those of the counting baselines."""
    from dayahead.summary import summarize_run

    root = project_root()
    print(summarize_run(load_params(root / "params.yaml"), root))


@app.command()
def profile(
    window: Annotated[
        str | None,
        typer.Option(help="Its fit is profiled; otherwise profile.window, or the third."),
    ] = None,
    first_step: Annotated[int | None, typer.Option(min=0, help="First step to trace.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps to trace.")] = None,
    into: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("build/profile"),
) -> None:
    """Profile one fit of the study and its evaluation; results/ stays as it is."""
    from dayahead.profile import profile_fit

    root = project_root()
    params = load_params(root / "params.yaml")
    config = params.profile
    config = config if window is None else replace(config, window=window)
    config = config if first_step is None else replace(config, first_step=first_step)
    config = config if steps is None else replace(config, steps=steps)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = profile_fit(replace(params, profile=config), root, into)
    print(f"Tables and traces are in {folder}; open a trace at https://ui.perfetto.dev")


cache = typer.Typer(invoke_without_command=True)
app.add_typer(cache, name="cache")
_REMOTE = typer.Argument(help="Name of a DVC remote; without one, the default remote.")
_ALL_FITS = typer.Option(
    "--all-fits", help="Every cached fit of the study, not only the newest of each model."
)


@cache.callback()
def list_cache(
    context: typer.Context,
    prune: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Remove entries not used for this many days."),
    ] = None,
) -> None:
    """List the cached results of finished work, their size and last use; share them."""
    if context.invoked_subcommand is not None:
        if prune is not None:
            raise ConfigError(f"cache: --prune does not go with {context.invoked_subcommand}")
        return
    if prune is not None:
        before = time.time() - prune * 86_400
        n_removed = sum(Cache(cache_root() / kind).prune(before) for kind in KINDS)
        print(f"{n_removed:,} entries removed that were not used for {prune:g} days")
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


@cache.command("push")
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
    _print_report(push(cache_root(), there, entries), f"sent to {there.shown}")


@cache.command("pull")
def pull_cache(
    remote: Annotated[str | None, _REMOTE] = None,
    all_fits: Annotated[bool, _ALL_FITS] = False,
) -> None:
    """Fetch what a DVC remote has of the study in params.yaml into the cache."""
    from dayahead.sharing.pull import pull
    from dayahead.sharing.remote import open_remote
    from dayahead.sharing.study import DATA, is_cached, study_entries

    root = project_root()
    there = open_remote(root, remote)
    study = study_entries(root)
    entries = study.select(lambda entry: is_cached(entry) or entry in there, all_fits=all_fits)
    data = [root / folder for folder in DATA]
    _print_report(pull(cache_root(), there, entries, data), f"fetched from {there.shown}")


def _print_report(report: "Report", what: str) -> None:
    verb, _, where = what.partition(" ")
    print(report.table(verb), where, sep="\n")
    if report.refused:
        lines = [f"{kind}/{key}: {reason}" for (kind, key), reason in report.refused.items()]
        raise DataError(f"{len(lines)} entries were left out:\n  " + "\n  ".join(sorted(lines)))


@app.command()
def track(
    sync: Annotated[
        bool, typer.Option("--sync", help="Upload the records that the server has missed.")
    ] = False,
) -> None:
    """Upload the records that the tracking server missed while it was unreachable."""
    if not sync:
        raise ConfigError("track: expected the option --sync")
    from dayahead.tracking.uploader import sync_all

    report = sync_all()
    n_records = sum(report.uploaded.values())
    print(f"{n_records} records of {len(report.uploaded)} stages sent to {report.store}")
    if report.failures:
        lines = [f"{stage}: {reason}" for stage, reason in report.failures.items()]
        raise TrackingError("not yet sent:\n  " + "\n  ".join(lines))


if __name__ == "__main__":
    with exit_with_message():
        app()
