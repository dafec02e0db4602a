"""Sessions of a window, collected batch by batch: held in memory, or read again from disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from dayahead.memory.clicks import Clicks, Ints, WindowSessions, cut_clicks
from dayahead.memory.outline import Outline

MAX_OUTLINES = 4096
"""Outlines of batches before they are joined: many small arrays would leave gaps in the heap."""


class ReadClicks(Protocol):
    """Reads some sessions, in the order given."""

    def __call__(self, rows: Ints, *, is_held: bool) -> Clicks:
        """Return them; `is_held` says whether a network is going to read them too."""


@dataclass(frozen=True)
class SessionsOnDisk:
    """Sessions whose clicks are read when they are needed."""

    whole: Outline
    read: ReadClicks

    def outline(self, before: int | None = None) -> Outline:
        """Return the outline, which says nothing of clicks before a time: ticks need memory."""
        assert before is None, "sessions on disk have no ticks"
        return self.whole

    def take(self, rows: Ints) -> Clicks:
        """Return some sessions, in the order given."""
        return self.read(rows, is_held=False)

    def hold(self, rows: Ints) -> Clicks:
        """Return some sessions, and let the network read them from memory."""
        return self.read(rows, is_held=True)

    def parts(self, rows: Ints) -> Iterator[Clicks]:
        """Yield some sessions, as `WindowSessions.parts`."""
        return (self.take(rows[part]) for part in cut_clicks(self.whole.lengths[rows]))


class Collected:
    """Sessions in the order in which they are added.

    Args:
        n_categories: categorical columns.
        read: reads sessions by their place in this order, which are not held then.
    """

    def __init__(self, n_categories: int, read: ReadClicks | None = None) -> None:
        self.n_categories = n_categories
        self.read = read
        self._held: list[Clicks] = []
        self._outlines: list[Outline] = []

    def add(self, sessions: Clicks) -> None:
        """Add sessions."""
        if self.read is None:
            self._held.append(sessions)
            return
        self._outlines.append(sessions.outline())
        if len(self._outlines) == MAX_OUTLINES:
            self._outlines = [Outline.cat(self._outlines)]

    @property
    def sessions(self) -> WindowSessions:
        """All sessions added."""
        if self.read is None:
            return Clicks.cat(self._held, self.n_categories)
        return SessionsOnDisk(Outline.cat(self._outlines), self.read)
