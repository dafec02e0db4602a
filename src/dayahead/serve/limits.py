"""Limits of the work that a request may cause, and of the time that a client may take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dayahead.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dayahead.serve.messages import Event, LiveEvent, SessionRequest, SimilarRequest

MIB = 2**20
EXPLAIN_ENTRIES = 2_000
"""What an explanation counts among the entries: it scores all candidates of a session again."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a service, options of `dayahead serve`."""

    body_bytes: int = 4 * MIB
    """Bytes of a request's body."""
    sessions: int = 1_000
    """Sessions of a request, or events of one to /events."""
    events: int = 10_000
    """Events of a session, and of its past; the model reads only the last ones."""
    fields: int = 100
    """Fields of an event."""
    top_k: int = 10_000
    """Items that a session may ask for."""
    entries: int = 120_000
    """Events, items asked for, ids in allow and deny: those of all sessions of a request."""
    answer_bytes: int = 16 * MIB
    """Bytes of an answer's body."""
    waiting: int = 1_000_000
    """Entries that wait for the model; the last half is kept for small requests."""
    connections: int = 1_000
    """Open connections; beyond them, the one that has waited longest for its client is closed."""
    request_seconds: float = 10.0
    """Seconds for a client to send a header, and then for the body."""
    answer_seconds: float = 30.0
    """Seconds for a client to receive an answer."""

    def __post_init__(self) -> None:
        """Raise ConfigError for limits under which nothing, or no large request, is answered."""
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise ConfigError(
                    f"serve: {field.name} is {getattr(self, field.name)}; expected a limit above 0"
                )
        if 2 * self.entries > self.waiting:
            raise ConfigError(
                f"serve: --max-entries {self.entries} is more than half of --max-waiting "
                f"{self.waiting}, so a large request could never wait; raise --max-waiting to "
                f"{2 * self.entries}"
            )

    def check(self, requests: "Sequence[SessionRequest | SimilarRequest]", n_items: int) -> None:
        """Check the requests of a body.

        Args:
            requests: the sessions of one HTTP request, or its item.
            n_items: number of items that the model can recommend.

        Raises:
            DataError: a limit is exceeded.
        """
        if len(requests) > self.sessions:
            raise DataError(_over(f"{len(requests):,} sessions", "sessions", self.sessions))
        for row, request in enumerate(requests):
            try:
                self._check_session(request)
            except DataError as error:
                where = f"requests.{row}." if len(requests) > 1 else ""
                raise DataError(f"{where}{error}") from None
        if (n_entries := sum(n_entries_of(each, n_items) for each in requests)) > self.entries:
            named = "events, top_k, allow, deny, where and explain of all sessions"
            found = f"{n_entries:,} entries ({named})"
            raise DataError(_over(found, "entries", self.entries))

    def check_events(self, events: "Sequence[LiveEvent]") -> None:
        """Check the events of a body.

        Raises:
            DataError: a limit is exceeded.
        """
        if len(events) > self.sessions:
            raise DataError(_over(f"{len(events):,} events", "sessions", self.sessions))
        self._check_fields("events", events)

    def _check_session(self, request: "SessionRequest | SimilarRequest") -> None:
        for name in ("session", "events", "past"):
            n_events = len(getattr(request, name, None) or ())
            if n_events > self.events:
                raise DataError(_over(f"{name}: {n_events:,} events", "events", self.events))
        for name in ("events", "past"):
            self._check_fields(name, getattr(request, name, None) or ())
        if request.top_k > self.top_k:
            raise DataError(_over(f"top_k: {request.top_k:,}", "top-k", self.top_k))

    def _check_fields(self, name: str, events: "Sequence[Event]") -> None:
        for row, event in enumerate(events):
            if (n_fields := len(event.model_extra or ()) + 2) > self.fields:
                found = f"{name}.{row}: {n_fields:,} fields"
                raise DataError(_over(found, "fields", self.fields))


def n_entries_of(request: "SessionRequest | SimilarRequest", n_items: int) -> int:
    """Return the cost of a request: 1, its events, items requested, what filters name, evidence."""
    names = ("session", "events", "past", "allow", "deny")
    lists = [getattr(request, name, None) for name in names] + [*request.where.values()]
    explained = EXPLAIN_ENTRIES if getattr(request, "explain", False) else 0
    return 1 + sum(map(len, filter(None, lists))) + min(request.top_k, n_items) + explained


def _over(found: str, option: str, limit: int) -> str:
    return f"{found}; expected at most {limit:,} (dayahead serve --max-{option})"
