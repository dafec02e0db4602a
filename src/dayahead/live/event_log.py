"""The log of events: what a service has taken, on disk before it is acknowledged."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

DEFAULT_LOG: Final = "live/events.sqlite"
"""Where `dayahead serve --live` keeps events by default, in the project's folder."""


class Event(NamedTuple):
    """A click of a session, as a client reports it."""

    id: str
    """By which a click that is reported again is found."""
    session: str
    user: str | None
    time: int
    """When it happened, microseconds since 1970."""
    fields: dict[str, Any]
    """The raw values of item_id and of further columns."""
    position: int = 0
    """Its place in the log, from 1 on; 0 before it is there."""
    arrived: int = 0
    """When the log took it, microseconds since 1970; later positions have no earlier time."""


class EventLog(ABC):
    """Events in the order in which they arrived; one that is reported again is left out.

    Each event is passed to `deliver` once it is on disk, at the latest by `complete_until`.
    """

    def __init__(self) -> None:
        self.deliver: Callable[[Sequence[Event]], None] = lambda _: None
        """Takes events in the order of their positions.

        To be replaced once a model is in use, which reads from the log what came before.
        """
        self._lock = threading.RLock()
        """Held while events are delivered."""

    @abstractmethod
    def append(self, events: Sequence[Event]) -> list[bool]:
        """Write events, and say of each whether it is new.

        Raises:
            OSError: they could not be written.
        """

    @abstractmethod
    def complete_until(self) -> int:
        """Deliver what has arrived; return a time before which none will arrive any more.

        Microseconds since 1970.
        """

    @abstractmethod
    def read(self, after: int = 0) -> Iterator[Event]:
        """Yield the events after a position, in their order."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Deliver nothing in this block."""
        with self._lock:
            yield

    @abstractmethod
    def prune(self, before: int) -> int:
        """Remove the events that arrived before a time; return their number."""

    @abstractmethod
    def close(self) -> None:
        """Release the log."""
