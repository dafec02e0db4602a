"""The history of decisions: one line of JSON each, from which all other state follows.

A decision is appended before it is carried out, so a run that was killed in between is completed
by the next one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from dayahead.config.loading import validated
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import encodable, partial_files, read_json, write_json, write_text

Kind = Literal["published", "held", "refused", "skipped", "rolled back"]
DECISIONS = ("published", "held", "refused")
"""Kinds of entries that decide on a new window; exactly one of them is the outcome of a night."""
ACTIONS = (*DECISIONS, "rolled back")
"""Kinds that change, or may change, what is published."""
EXACT = ConfigDict(extra="forbid", strict=True)


@checked_dataclass(frozen=True, kw_only=True, config=EXACT)
class Entry:
    """One line of the history."""

    kind: Kind
    why: str
    time: str = ""
    """When it was written, UTC."""
    window: str = ""
    """Newest window when it was written."""
    key: str = ""
    """Fingerprint of the decision's input; the same night is not decided twice."""
    model: str = ""
    """Published model that this entry is about."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metric of decisions in the window: `model` has that of the settings, others those of the
    counting baselines."""
    checks: list[dict[str, Any]] = field(default_factory=list)
    """Outcome of each guard (`guards.Check`)."""
    details: dict[str, Any] = field(default_factory=dict)
    """For a decision: its windows, `settings`, `targets` and more."""


@dataclass(frozen=True)
class State:
    """State that follows from the entries."""

    entries: Sequence[Entry]

    @cached_property
    def published(self) -> tuple[str, str]:
        """Names of the current and the previous published model, empty where there is none."""
        current = previous = ""
        for entry in self.entries:
            if entry.kind == "published" and entry.model != current:
                current, previous = entry.model, current
            elif entry.kind == "rolled back":
                current, previous = previous, current
        return current, previous

    @property
    def withdrawn(self) -> dict[str, str]:
        """Models that were rolled back, with the reason; a second rollback undoes the first."""
        reasons: dict[str, str] = {}
        for entry in self.entries:
            # A rollback to a withdrawn model undoes its withdrawal, and withdraws nothing.
            if entry.kind == "rolled back" and reasons.pop(entry.model, None) is None:
                reasons[entry.details["withdrawn"]] = entry.details["reason"]
        return reasons

    @property
    def decisions(self) -> list[Entry]:
        """Decisions, the oldest first."""
        return [entry for entry in self.entries if entry.kind in DECISIONS]

    def figures(self, settings: str, targets: str) -> dict[str, float]:
        """Return the metric by window of models with these settings, on these targets."""
        wanted = {"settings": settings, "targets": targets}
        found = [e for e in self.decisions if e.metrics and wanted.items() <= e.details.items()]
        return {entry.window: entry.metrics["model"] for entry in found}

    @property
    def action(self) -> Entry | None:
        """The newest decision or rollback, which has to be carried out."""
        return next((e for e in reversed(self.entries) if e.kind in ACTIONS), None)

    @property
    def number(self) -> int:
        """Number of decisions and rollbacks."""
        return sum(entry.kind in ACTIONS for entry in self.entries)

    def decision_on(self, window: str) -> Entry | None:
        """Return the newest decision whose newest window is this one."""
        found = (e for e in reversed(self.decisions) if windows_of(e)[-1:] == [window])
        return next(found, None)

    @property
    def refused_windows(self) -> set[str]:
        """Windows whose data were refused.

        Only the last decision on each newest window counts: a window that was decided again is
        treated as if that had been its only decision.
        """
        decided = {windows_of(entry)[-1]: entry for entry in self.decisions if windows_of(entry)}
        refused: set[str] = set()
        for entry in decided.values():
            refused -= {*windows_of(entry)}
            refused |= {*entry.details.get("refused_windows", ())}
        return refused

    def publication(self, model: str) -> Entry | None:
        """Return the entry that published a model."""
        found = (e for e in self.entries if e.kind == "published" and e.model == model)
        return next(found, None)


def windows_of(entry: Entry) -> list[str]:
    """Return the new windows that a decision is about, none where a stage refused the data."""
    return list(entry.details.get("windows", ()))


@dataclass(frozen=True)
class History:
    """The files of nights/."""

    folder: Path

    @property
    def path(self) -> Path:
        """history.jsonl."""
        return self.folder / "history.jsonl"

    @property
    def _finished(self) -> Path:
        return self.folder / "finished.json"

    def read(self) -> State:
        """Read all entries.

        Raises:
            DataError: a line is damaged.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            if self.path.is_symlink():
                raise DataError(
                    f"{self.path}: links to {self.path.readlink()}, which is not there; restore "
                    f"it, or remove the link to start a new history"
                ) from None
            return State(())
        lines = enumerate(content.splitlines(), start=1)
        return State(tuple(self._entry(line, number) for number, line in lines))

    def append(self, entry: Entry) -> State:
        """Append an entry atomically, after checking that it can be read; return the new state."""
        written = replace(entry, time=f"{datetime.now(UTC):%Y-%m-%d %H:%M}")
        entries = (*self.read().entries, written)
        lines = [json.dumps(encodable(_given(each)), allow_nan=False) for each in entries]
        self._entry(lines[-1].encode(), len(lines))
        write_text(self.path, "".join(f"{line}\n" for line in lines))
        return self.read()

    def _entry(self, line: bytes, number: int) -> Entry:
        try:
            return validated(Entry, json.loads(line), f"{self.path}:{number}")
        except (ValueError, ConfigError, RecursionError) as error:
            raise DataError(
                f"{self.path}: line {number} is not an entry of the history ({error}); restore "
                f"the file, or move it away to start a new history"
            ) from None

    def remove_partial(self) -> None:
        """Remove files that a killed run has not finished."""
        for path in (self.path, self._finished):
            for left in partial_files(path):
                left.unlink()

    def unfinished(self) -> Entry | None:
        """Return the newest decision or rollback, unless it was carried out to the end."""
        state = self.read()
        if state.action is None:
            return None
        try:
            is_finished = read_json(self._finished) == _mark(state)
        except (FileNotFoundError, ValueError):  # repeating a step changes nothing
            is_finished = False
        return None if is_finished else state.action

    def finish(self) -> None:
        """Record that the newest decision or rollback was carried out to the end."""
        write_json(self._finished, _mark(self.read()))


def _mark(state: State) -> dict[str, object]:
    """Identify the newest decision or rollback; by number too, as an earlier one may be equal."""
    return {"number": state.number, "newest": _given(state.action) if state.action else None}


def _given(entry: Entry) -> Mapping[str, Any]:
    return {n: v for n, v in asdict(entry).items() if n == "why" or v not in ("", [], {})}
