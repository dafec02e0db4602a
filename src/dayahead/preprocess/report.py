"""What preprocess says about a log: events dropped in large numbers, ids that are not unique."""

import logging
from collections.abc import Sequence

from dayahead.config.windows import WindowConfig
from dayahead.core.columns import SESSION_ID, USER_ID
from dayahead.core.errors import DataError
from dayahead.dataset.columns import ColumnsConfig
from dayahead.dataset.losses import large_losses
from dayahead.dataset.schema import DatasetConfig
from dayahead.preprocess.defects import SESSION_DAYS, SESSION_USERS, Examples
from dayahead.windows.metadata import WindowsManifest

_UNITS = {SESSION_USERS: "sessions", SESSION_DAYS: "events"}
_WHAT = {
    SESSION_USERS: "sessions hold the events of several users",
    SESSION_DAYS: "sessions have events more than 24 hours after their start",
}
_log = logging.getLogger(__name__)


class DefectsError(DataError):
    """More of the log has a defect than section `quality` of the data set file allows."""


def report_losses(manifest: WindowsManifest, dataset: DatasetConfig, window: WindowConfig) -> None:
    """Log a line for each setting that drops more than a tenth of the events."""
    rules = dataset.sessions
    repeats = f"sessions.repeats: {rules.repeats.rule}"
    if dataset.columns.event_type is None:
        repeats += (
            " (if they are of other types, such as carts after views, set columns.event_type)"
        )
    causes = {
        "no_user": "sessions.gap_minutes, as they name no user (columns.user_id)",
        "retries": f"sessions.retry_seconds: {rules.retry_seconds or 0:g}",
        "repeats": repeats,
        "overrun": f"window.overrun: {window.overrun}, as they come after their session's window",
        "short_sessions": f"sessions.min_length: {rules.min_length}",
        "truncated": f"sessions.max_length: {rules.max_length}",
        "no_role": "split, as their sessions are in none of its intervals",
    }
    steps = manifest.steps
    losses = {cause: steps.get(f"dropped_{step}", 0) for step, cause in causes.items()}
    thin = sum(each.events for each in manifest.windows if each.state == "dropped")
    losses[f"window.min_sessions: {window.min_sessions}"] = thin
    for line in large_losses("preprocess", "events", steps["events_read"], losses):
        _log.warning("%s", line)


def check_defects(manifest: WindowsManifest, examples: Examples, dataset: DatasetConfig) -> None:
    """Log a line for each defect of session ids, and compare their shares with the limits.

    Raises:
        DefectsError: a share is above its limit in section `quality`.
    """
    exceeded = []
    for name, counts in (manifest.defects or {}).items():
        limit: float | None = getattr(dataset.quality, name)
        share = counts.found / counts.of
        # The ids of sessions that are cut by gaps are those of users.
        shown = "" if dataset.columns.session_id is None else f", such as {examples[name][1]}"
        text = (
            f"{_WHAT[name]}: {share:.2%} of {counts.of:,} {_UNITS[name]} ({counts.found:,})"
            f"{shown}; {_cure(name, dataset.columns)}"
        )
        if limit is not None and share > limit:
            exceeded.append(f"{text}, or raise quality.{name} ({limit:.2%}), which this exceeds")
        else:
            _log.warning("preprocess: %s", text)
    if exceeded:
        raise DefectsError(f"data/raw: {'; '.join(exceeded)}")


def _cure(name: str, columns: ColumnsConfig) -> str:
    if columns.session_id is None:
        return "if these are no persons, leave them out, or lower sessions.gap_minutes"
    sources = columns.sources()
    if USER_ID not in sources or columns.session_holds_user:
        return "if ids are used again, name a column more in columns.session_id: [day, session]"
    key: Sequence[str] = [*sources[USER_ID], *sources[SESSION_ID]]
    why = "unique for a user only" if name == SESSION_USERS else "used again"
    return f"if ids are {why}, set columns.session_id: [{', '.join(key)}]"
