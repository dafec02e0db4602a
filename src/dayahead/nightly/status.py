"""Output of `dayahead nightly --status`: the served model, since when, and the decisions."""

from collections.abc import Iterator
from typing import Any

from dayahead.nightly.history import Entry, State
from dayahead.nightly.publication import Publications
from dayahead.nightly.quality import Quality
from dayahead.nightly.reasons import reasons_of


def status_lines(
    state: State, publications: Publications, quality: Quality | None
) -> Iterator[str]:
    """Yield the lines; the served model is the one linked in published/, not in the history.

    `quality` is that of the newest night that published.
    """
    current, previous = state.published
    served = publications.linked("current")
    yield f"serving   {_served(served, state, publications)}"
    if current and served != current:
        yield f"pending   {current}: the next night, or a rollback, serves it"
    for model, reason in state.withdrawn.items():
        yield f"withdrawn {model}: {reason}"
    is_gone = previous and not publications.path(previous).is_dir()
    yield f"previous  {previous or 'nothing'}{', whose folder is gone' if is_gone else ''}"
    if quality is not None:
        yield f"quality   {quality}"
    last = state.decisions[-1] if state.decisions else None
    yield f"decision  {_decision(last, state) if last else 'none yet'}"
    if last is not None and last.model not in state.withdrawn:
        yield from reasons_of(last).lines
    for entry, end in state.trials:
        outcome = end.details["outcome"] if end else "on trial"
        yield f"trial     {entry.details['challenger']}: {outcome}, from {entry.window}"


def status_json(
    state: State, publications: Publications, quality: Quality | None
) -> dict[str, Any]:
    """Return the same for programs; null for what there is not, and models by their names."""
    current, previous = state.published
    since = publications.since("current")
    last = state.decisions[-1] if state.decisions else None
    return {
        "serving": publications.linked("current") or None,
        "since": since.isoformat(timespec="seconds") if since else None,
        "published": current or None,
        "previous": previous or None,
        "withdrawn": state.withdrawn,
        "quality": quality.as_json if quality else None,
        "decision": {"window": last.window, "outcome": last.kind, "why": last.why}
        if last
        else None,
        "trials": [
            {
                "challenger": entry.details["challenger"],
                "from": entry.window,
                "outcome": end.details["outcome"] if end else None,
            }
            for entry, end in state.trials
        ],
    }


def _served(model: str, state: State, publications: Publications) -> str:
    since = publications.since("current")
    if since is None:
        path = publications.folder / "current"
        return f"not known: {path} is no link; remove or rename it" if path.exists() else "nothing"
    if not publications.path(model).is_dir():
        return f"nothing: published/current links to {model}, whose folder is gone"
    action = next((e for e in reversed(state.entries) if _serves(e, model)), None)
    if action is None:
        how = ", which no decision of this history has published"
    elif action.kind == "published":
        how = f", published for window {action.window}"
    else:
        how = f", by a rollback: {action.why}"
    return f"{model} since {since:%Y-%m-%d %H:%M} UTC{how}"


def _serves(entry: Entry, model: str) -> bool:
    return entry.kind in ("published", "rolled back") and entry.model == model


def _decision(last: Entry, state: State) -> str:
    """Describe a decision; if its model was withdrawn since, that instead of passed guards."""
    if last.kind == "published" and last.model in state.withdrawn:
        return f"{last.window} published, and withdrawn since: {state.withdrawn[last.model]}"
    return f"{last.window} {last.kind}: {reasons_of(last).headline}"
