"""What users ask beside the pipeline: recommend, compare, preset, states, track."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from dayahead.compare.paired_tests import compare as compare_results
from dayahead.compare.summary import render
from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError, TrackingError, exit_with_message
from dayahead.core.project import cache_root
from dayahead.core.shelves import clear, shelves
from dayahead.presets import preset_options
from dayahead.serve.recommender import Recommender
from dayahead.tracking.background import sync_all
from dayahead.tracking.run_lookup import results_of

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def recommend(
    session: Annotated[
        str | None, typer.Option(help="Raw item ids, oldest first, separated by commas.")
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
        typer.Option(
            help="CSV of the user's earlier events, with the columns of --events, for models that "
            "read them."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many items.")] = 10,
    models: Annotated[Path, typer.Option(help="Folder of the saved model.")] = Path("models"),
) -> None:
    """Print the best next items of a live session and their scores, best first."""
    if (session is None) == (events is None):
        raise ConfigError("recommend: give either --session ID,ID,... or --events FILE")
    if past is not None and events is None:
        raise ConfigError("recommend: --past goes with --events FILE, whose times say what is past")
    recommender = Recommender.load(models)
    if events is not None:
        before = None if past is None else recommender.read_events(past)
        best = recommender.recommend_after(recommender.read_events(events), top_k, before)
    else:
        ids = [item.strip() for item in (session or "").split(",") if item.strip()]
        best = recommender.recommend(ids, top_k)
    for item, score in best:
        print(f"{item}\t{score:.6f}")


@app.command()
def compare(
    run_a: Annotated[str, typer.Argument(help="DVC experiment, Git revision, MLflow run, folder.")],
    run_b: Annotated[str, typer.Argument(help="The same, of the run to hold against it.")],
) -> None:
    """Test which of two runs is better, per session and per window, over the same targets."""
    cutoffs = load_params().evaluation.cutoffs
    with tempfile.TemporaryDirectory() as scratch:
        a = results_of(run_a, Path(scratch) / "a")
        b = results_of(run_b, Path(scratch) / "b")
        print(render(compare_results(a, b, cutoffs), run_a, run_b))


@app.command()
def preset(
    name: Annotated[str, typer.Argument(help="Data set and row, as in g1/xlnet-mlm.")],
) -> None:
    """Print the options that give `dvc exp run` a published row's settings."""
    print(" ".join(preset_options(name)))


@app.command()
def states(
    prune: Annotated[
        float | None,
        typer.Option(min=0, help="Remove what no run has used for so many days.", metavar="DAYS"),
    ] = None,
) -> None:
    """List what the store of finished work holds, and how much room it takes."""
    if prune is not None:
        n_cleared = clear(cache_root(), time.time() - prune * 86_400)
        print(f"{n_cleared:,} entries removed that no run has used for {prune:g} days")
    held = shelves(cache_root())
    for shelf in held:
        print(shelf.told)
    print(f"{sum(shelf.n_bytes for shelf in held) / 2**20:.1f} MiB in {cache_root()}")


@app.command()
def track(
    sync: Annotated[bool, typer.Option("--sync", help="Send what the server missed.")] = False,
) -> None:
    """Send to the tracking server what it missed while it could not be reached."""
    if not sync:
        raise ConfigError("track: the one thing to do is --sync")
    report = sync_all()
    print(f"{report.n_entries} records of {len(report.runs)} stages sent to {report.store}")
    if report.left:
        raise TrackingError("not yet sent:\n  " + "\n  ".join(report.left))


if __name__ == "__main__":
    with exit_with_message():
        app()
