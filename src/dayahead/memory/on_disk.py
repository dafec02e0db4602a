"""Sessions of a window that is larger than memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from dayahead.memory.clicks import Clicks, Ints, cut_clicks
from dayahead.memory.outline import Outline


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
