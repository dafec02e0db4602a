"""The log of events: what a service has taken, on disk before it is acknowledged."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from dayahead.live.event import Event

DEFAULT_LOG: Final = "live/events.sqlite"
"""Where `dayahead serve --live` keeps events by default, in the project's folder."""
Deliver = Callable[[Sequence[Event]], None]
"""Takes events in the order of their positions."""


class EventLog(ABC):
    """Events in the order in which they arrived; one that is reported again is left out.

    Each event is passed to `deliver` once it is on disk, at the latest by `complete_until`.
    """

    def __init__(self) -> None:
        self.deliver: Deliver = lambda _: None
        """To be replaced once a model is in use, which reads from the log what came before."""

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

    @abstractmethod
    def paused(self) -> AbstractContextManager[None]:
        """Deliver nothing in this block."""

    @abstractmethod
    def prune(self, before: int) -> int:
        """Remove the events that arrived before a time; return their number."""

    @abstractmethod
    def close(self) -> None:
        """Release the log."""
