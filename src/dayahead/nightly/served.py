"""The served models: carrying out decisions, and rollback. Imports neither torch nor MLflow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dayahead.config.params import Params, load_params
from dayahead.core.errors import ConfigError
from dayahead.core.project import cache_root
from dayahead.core.redaction import redacted
from dayahead.nightly.history import Entry, History, State
from dayahead.nightly.pipeline import RetryLaterError
from dayahead.nightly.publication import Publications

STATUS = {"published": 0, "nothing new": 0, "rolled back": 0, "held": 3, "refused": 4}
"""Exit status by outcome; `RetryLaterError` exits with 75, any other error with 1."""


@dataclass(frozen=True)
class Outcome:
    """The result of a night."""

    outcome: str
    """A key of STATUS."""
    window: str
    why: str
    current: str = ""
    """The published model."""
    entry: Entry | None = field(default=None, repr=False, compare=False)
    """The decision or rollback, where there is one."""
    open: str = ""
    """The first window that is not complete, and why; empty if all are."""

    @property
    def status(self) -> int:
        """Exit status."""
        return STATUS[self.outcome]

    def as_json(self) -> dict[str, Any]:
        """Return the last line of `dayahead nightly --json`."""
        fields = asdict(self)
        del fields["entry"]
        return {**fields, "status": self.status}


@dataclass(frozen=True)
class Served:
    """The folders nights/ and published/ of a project."""

    root: Path
    record: Callable[[Path, Params, State, Entry], None] | None = field(default=None, kw_only=True)
    """Records a decision for the tracking server, which may be unreachable."""

    @property
    def history(self) -> History:
        """The folder nights/."""
        return History(self.root / "nights")

    @property
    def publications(self) -> Publications:
        """The folder published/."""
        return Publications(self.root / "published")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other nights and rollbacks of the project (a lock)."""
        path = cache_root() / "nightly.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(path, blocking=False):
                yield
        except Timeout:
            raise RetryLaterError(
                f"{self.root}: another `dayahead nightly` is at work; wait for it, or stop it: "
                f"the next call goes on where it was"
            ) from None

    def complete(self, params: Params) -> Outcome | None:
        """Carry out the newest decision or rollback if a killed run has not; return its outcome."""
        self.history.remove_partial()
        state, action = self.history.read(), self.history.unfinished()
        self._publish(params, state)  # first: serving must not wait for tracking
        if action is None:
            return None
        if self.record is not None:
            self.record(self.root, params, state, action)
        self.history.finish()
        return Outcome(action.kind, action.window, action.why, state.published[0], entry=action)

    def rollback(self, reason: str) -> Outcome:
        """Publish the previous model again; a second call undoes it.

        Raises:
            ConfigError: there is no previous model.
            RetryLaterError: a night is at work.
        """
        with self.alone():
            params = load_params(self.root / "params.yaml")
            earlier = self.complete(params) if self.history.unfinished() else None
            if earlier is not None and earlier.outcome == "rolled back":  # by a killed call
                return earlier
            state = self.history.read()
            current, previous = state.published
            if not previous or not self.publications.path(previous).is_dir():
                is_gone = f"the previous model is gone ({self.publications.path(previous)})"
                raise ConfigError(
                    f"{self.history.path}: {is_gone if previous else 'there is no previous model'} "
                    f"to roll back to; current is {current or 'nothing'}"
                )
            reason = redacted(reason)
            entry = Entry(
                kind="rolled back",
                window=state.decisions[-1].window,
                why=f"{current} is withdrawn ({reason}); {previous} is served again",
                model=previous,
                details={"withdrawn": current, "reason": reason},
            )
            self.history.append(entry)
            outcome = self.complete(params)
            assert outcome is not None
            return outcome

    def _publish(self, params: Params, state: State) -> None:
        if not state.published[0]:  # a new history keeps what an earlier one has published
            return
        self.publications.link(*state.published)
        order = [entry.model for entry in state.entries if entry.kind == "published"]
        self.publications.prune(params.nightly.keep, order)
