"""Clocks of a service: the machine's, or the time of the newest event, by which a log is replayed.

The time of a clock never goes back.
"""

import time
from typing import Literal

Kind = Literal["wall", "events"]
MOST_AHEAD = 60_000_000
"""Microseconds by which the clock of a client may be ahead of the service's."""


class Clock:
    """The machine's clock, in microseconds since 1970.

    When that is set back, the time stands still until it has caught up.
    """

    follows_events = False
    """Whether the time is that of the newest event."""

    def __init__(self) -> None:
        self._latest = 0

    def advance(self, until: int) -> int:
        """Return the time, which is not before `until` from now on."""
        self._latest = max(self._latest, until)
        return self._latest

    def now(self) -> int:
        """Return the time."""
        return self.advance(time.time_ns() // 1000)

    def arrival(self, happened: int) -> int:
        """Return the time at which an event arrives that happened at some time."""
        return self.now()

    def latest_possible(self) -> int:
        """Return the latest time that an event may have: what a client's clock may show."""
        return self.now() + MOST_AHEAD


class EventClock(Clock):
    """The time of the newest event: a log is replayed as fast as it comes."""

    follows_events = True

    def now(self) -> int:
        """Return the time of the newest event."""
        return self._latest

    def arrival(self, happened: int) -> int:
        """Return the time of the newest event, this one included."""
        return self.advance(happened)

    def latest_possible(self) -> int:
        """Return a time that is later than all."""
        return 2**62


def clock_of(kind: Kind) -> Clock:
    """Return a clock by the name of its kind."""
    return EventClock() if kind == "events" else Clock()
