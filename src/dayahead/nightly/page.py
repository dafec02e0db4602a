"""nightly.html: the history of decisions as one self-contained page."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from dayahead.aggregate.charts import curves
from dayahead.aggregate.environment import page_environment
from dayahead.config.metric_names import title_of
from dayahead.config.nightly import NightlyConfig
from dayahead.core.files import write_text
from dayahead.nightly.history import DECISIONS, NO_TICK, Entry, State
from dayahead.nightly.online import online_lines
from dayahead.nightly.quality import quality_of
from dayahead.nightly.reasons import is_checked, reasons_of

N_OPEN: Final = 60
"""Number of nights shown; the others are folded away."""
N_DRAWN: Final = 90
"""Number of newest windows in the chart."""
_MARKS: Final = {
    "published": "good",
    "held": "bad",
    "refused": "bad",
    "rolled back": "bad",
    "succession": "note",
}


def render_page(
    path: Path,
    state: State,
    config: NightlyConfig,
    dataset: str,
    times: Mapping[int, datetime],
    since: datetime | None,
) -> None:
    """Write the page; the same history and clock times give the same bytes.

    `times` are those of entries by their positions, `since` is that of the current model.
    """
    template = page_environment().from_string(
        files(__package__).joinpath("nightly.html.j2").read_text("utf-8")
    )
    current, previous = state.published
    entries = [_shown(state, config, each, times.get(n)) for n, each in enumerate(state.entries)]
    shown = entries[::-1]
    text = template.render(
        dataset=dataset,
        metric=title_of(config.metric),
        horizon=config.horizon,
        current=current,
        previous=previous,
        withdrawn=state.withdrawn,
        publication=state.publication(current) if current else None,
        action=state.action,
        since=since,
        counts={kind: sum(e.kind == kind for e in state.entries) for kind in DECISIONS},
        recent=shown[:N_OPEN],
        older=shown[N_OPEN:],
        marks=_MARKS,
        trials=_trials(state),
        chart=_chart(state, config.metric),
        online_lines=online_lines,
    )
    write_text(path, text)


def _shown(
    state: State, config: NightlyConfig, entry: Entry, at: datetime | None
) -> dict[str, Any]:
    """Return what the page says of an entry, which was written at that time."""
    return {
        "entry": entry,
        "checks": sorted(entry.checks, key=lambda check: (check["passed"], is_checked(check))),
        "is_checked": is_checked,
        "n_unchecked": sum(not is_checked(check) for check in entry.checks),
        "at": at,
        "reasons": reasons_of(entry),
        "quality": quality_of(state, entry, config.metric, config.windows),
    }


def _chart(state: State, metric: str) -> Markup | None:
    """Draw the metric by window: the champion's, and in grey the counting baselines'."""
    known = state.values(metric)
    windows = sorted(known)[-N_DRAWN:]
    if len(windows) < 2:  # noqa: PLR2004
        return None
    tables = {
        name: [known[window].get(name, float("nan")) for window in windows]
        for name in known[windows[-1]]
    }
    own: Mapping[str, Sequence[float]] = {"champion": tables.pop("champion")}
    chart: Markup = curves(metric, windows, own, beside=tables)
    return chart


def _trials(state: State) -> list[dict[str, Any]]:
    """Return the trials, the newest first: name, enrolment, and how each ended."""
    found = []
    for entry, end in reversed(state.trials):
        known = end.details if end is not None else {}
        waits = known.get("outcome") == "won" and state.champion != known["settings"]
        changes = _changes(state, entry)
        found.append({"entry": entry, "end": end, "changes": changes, "waits": waits})
    return found


def _changes(state: State, enrolled: Entry) -> dict[str, Any]:
    """Return the settings in which a challenger differs from the champion at its enrolment."""
    earlier = State(state.entries[: state.entries.index(enrolled)])
    before = NO_TICK | (earlier.champion or {})
    own = NO_TICK | enrolled.details["settings"]
    return {name: value for name, value in own.items() if before.get(name) != value}
