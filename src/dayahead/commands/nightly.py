"""`dayahead nightly`: retrain, decide, publish."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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


def nightly(
    *,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the outcome or the status as a line of JSON, the last."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train and decide, but record and publish nothing.")
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take changed settings for the champion's without a trial."),
    ] = False,
    commit: Annotated[
        bool,
        typer.Option("--commit", help="Promote a challenger that wins, and commit params.yaml."),
    ] = False,
    promote: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write a winner's settings into params.yaml; no night."),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Say what is published and decided; no night.")
    ] = False,
) -> None:
    """Fetch new data, fit one window more, and publish the model if all guards pass.

    Exit status: 0 published or nothing new, 3 held, 4 data refused, 10 a challenger won,
    75 try again later, 143 stopped, 1 any other error.
    """
    if promote is not None or status:
        is_more = dry_run or adopt or (commit if status else as_json)
        if (promote is not None) == status or is_more:
            raise ConfigError(
                "nightly: --status goes alone or with --json, --promote NAME alone or with --commit"
            )
        if promote is None:
            print(_status(as_json=as_json))
            return
        with retried_later():
            print(_promoted(promote, commit=commit))
        return
    if dry_run and commit:
        raise ConfigError("nightly: --dry-run changes nothing; leave out --commit")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with retried_later():
        night = project_night()
        outcome = night.run(adopt=adopt, dry_run=dry_run)
        exit_status = _reported(night, outcome, as_json=as_json, commit=commit)
    raise typer.Exit(exit_status)


@contextmanager
def retried_later() -> Iterator[None]:
    """Exit with status 75 if a later call may succeed."""
    from dayahead.nightly.pipeline import RetryLaterError

    try:
        yield
    except RetryLaterError as error:
        print(f"error: {redacted(str(error))}", file=sys.stderr)
        raise typer.Exit(75) from None


def _reported(night: "Night", outcome: "Outcome", *, as_json: bool, commit: bool) -> int:
    """Print how a night ended, and with `commit` promote a winner; return the exit status."""
    if outcome.outcome == "won" and commit:
        print(_promoted(outcome.challenger, commit=True))
        why = f"{outcome.challenger} won and is promoted"
        outcome = replace(outcome, outcome="published", why=why)
    for line in _outcome_lines(night, outcome):
        print(line)
    print(f"serving {outcome.current or 'nothing'}; history: {night.history.page}")
    if as_json:
        print(json.dumps(outcome.as_json()))
    return outcome.status


def _outcome_lines(night: "Night", outcome: "Outcome") -> Iterator[str]:
    """Yield how a night ended, the reasons of a decision, and whether quality rose or fell."""
    from dayahead.config.params import load_params
    from dayahead.nightly.quality import quality_of
    from dayahead.nightly.reasons import reasons_of

    entry, why = outcome.entry, outcome.why
    if entry is None or not why.endswith(entry.why):
        window = f"{outcome.window}: " if outcome.outcome == "published" else ""
        yield f"{outcome.outcome}: {window}{why}"
    else:
        reasons = reasons_of(entry)
        yield f"{outcome.outcome}: {why.removesuffix(entry.why)}{reasons.headline}"
        yield from reasons.lines
    if entry is not None:
        config = load_params(night.root / "params.yaml").nightly
        quality = quality_of(night.history.read(), entry, config.metric, config.windows)
        if quality is not None:
            yield str(quality)
    if outcome.open:
        yield outcome.open


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


def _promoted(name: str, *, commit: bool) -> str:
    from dayahead.nightly.promotion import commit as commit_params
    from dayahead.nightly.promotion import promote

    served = project_served()
    with served.alone():
        diff = promote(served.root, name, served.history.read())
        if commit:
            commit_params(served.root, name)
    return f"{diff}\n{name} is the champion from the next night on"


def _status(*, as_json: bool) -> str:
    from dayahead.config.params import load_params
    from dayahead.nightly.quality import quality_of_published
    from dayahead.nightly.status import status_json, status_lines

    served = project_served()
    if not (served.root / "params.yaml").exists():
        raise ConfigError(f"{served.root}: no params.yaml; run this in the project's folder")
    state = served.history.read()
    try:
        config = load_params(served.root / "params.yaml").nightly
        quality = quality_of_published(state, config.metric, config.windows)
    except ConfigError:  # what is served does not depend on the settings
        quality = None
    if as_json:
        return json.dumps(status_json(state, served.publications, quality))
    return "\n".join(status_lines(state, served.publications, quality))
