"""`dayahead nightly`: retrain, decide, publish; or say what was decided, or roll back."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dayahead.core.errors import ConfigError
from dayahead.core.project import project_root
from dayahead.core.redaction import redacted

if TYPE_CHECKING:
    from dayahead.config.params import Params
    from dayahead.nightly.history import Entry, State
    from dayahead.nightly.night import Night
    from dayahead.nightly.served import Outcome, Served

N_SHOWN = 20
"""Lines of the history that --status prints."""


def nightly(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as a line of JSON, the last.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train and decide, but record and publish nothing.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Say what is published and decided; no night.")
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Publish the previous model again; no night.")
    ] = False,
    reason: Annotated[
        str, typer.Option(help="Why it is rolled back, for the history.")
    ] = "by hand",
) -> None:
    """Fetch new data, fit one window more, and publish the model if all guards pass.

    A model that was rolled back is not published again; a second rollback takes it back.

    Exit status: 0 published or nothing new, 3 held, 4 data refused, 75 try again later,
    143 stopped, 1 any other error.
    """
    if sum((dry_run, status, rollback)) > 1:
        raise ConfigError("nightly: expected at most one of --status, --dry-run and --rollback")
    if status:
        print("\n".join(_status_lines(project_served())))
        return
    with _retried_later():
        if rollback:
            outcome = project_served().rollback(reason)
        else:
            logging.basicConfig(level=logging.INFO, format="%(message)s")
            outcome = project_night().run(dry_run=dry_run)
    print("\n".join(_outcome_lines(outcome)))
    if as_json:
        print(json.dumps(outcome.as_json()))
    raise typer.Exit(outcome.status)


@contextmanager
def _retried_later() -> Iterator[None]:
    """Exit with status 75 if a later call may succeed."""
    from dayahead.nightly.pipeline import RetryLaterError

    try:
        yield
    except RetryLaterError as error:
        print(f"error: {redacted(str(error))}", file=sys.stderr)
        raise typer.Exit(75) from None


def _outcome_lines(outcome: "Outcome") -> Iterator[str]:
    """Yield how a night ended: a line for each guard that refused, and what to do."""
    failed = [each for each in outcome.entry.checks if not each["passed"]] if outcome.entry else []
    window = f"{outcome.window}: " if outcome.window else ""
    why = f"{len(failed)} guards refused it" if failed else outcome.why
    yield f"{outcome.outcome}: {window}{why}"
    for check in failed:
        yield f"  {check['guard']}: {check['why']}"
    for advice in dict.fromkeys(check["advice"] for check in failed if "advice" in check):
        yield f"  what to do: {advice}"
    if outcome.open:
        yield outcome.open
    yield f"serving {outcome.current or 'nothing'}"


def project_night() -> "Night":
    """Return the nightly runs of the project that contains the working folder."""
    from dayahead.nightly.night import Night
    from dayahead.nightly.pipeline import Pipeline

    root = project_root()
    return Night(root, Pipeline(root), record=_record)


def project_served() -> "Served":
    """Return the served models of that project, without importing torch, which takes seconds."""
    from dayahead.nightly.served import Served

    return Served(project_root(), record=_record)


def _record(root: Path, params: "Params", state: "State", entry: "Entry") -> None:
    from dayahead.tracking.publication import Publication, record_publication

    number, (champion, previous) = state.number, state.published
    is_new = entry.kind == "published"
    publication = Publication(
        number=number,
        key=f"{number}-{entry.window}",
        model=params.nightly.model,
        window=entry.window,
        metrics={f"{name}_{params.nightly.metric}": v for name, v in entry.metrics.items()},
        published=entry.model if is_new else "",
        folder=root / "published" / entry.model if is_new else None,
        champion=champion,
        previous=previous,
        withdrawn=state.withdrawn,
    )
    code = root / "src" / "dayahead" / "serve" / "pyfunc.py"
    record_publication(params, publication, code)


def _status_lines(served: "Served") -> Iterator[str]:
    """Yield what is served, and the newest lines of the history."""
    if not (served.root / "params.yaml").exists():
        raise ConfigError(f"{served.root}: no params.yaml; run this in the project's folder")
    yield f"serving {served.publications.linked('current') or 'nothing'}"
    yield f"previous {served.publications.linked('previous') or 'nothing'}"
    for entry in served.history.read().entries[-N_SHOWN:]:
        metric = f"{entry.metrics['model']:.4f}" if entry.metrics else ""
        yield f"{entry.time:16}  {entry.window:16}  {entry.kind:11}  {metric:6}  {entry.why}"
