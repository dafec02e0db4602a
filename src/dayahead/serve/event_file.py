"""A file to which another process appends events, one JSON object a line."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dayahead.serve.messages import LiveEvent, Taken
from dayahead.serve.micro_batches import Overloaded

AT_ONCE = 1_000
"""Lines that are read at once."""
PAUSE = 0.2
"""Seconds until more is looked for."""
log = logging.getLogger(__name__)
Take = Callable[[Sequence[LiveEvent]], Awaitable[Taken]]


@dataclass
class EventFile:
    """Events in a file that grows; a file that is shorter than before is a new one.

    It is read from its start when a service starts: events that are in the log already are left
    out there.
    """

    path: Path
    n_read: int = 0
    """Bytes read so far."""
    n_lines: int = 0

    async def follow(self, take: Take) -> None:
        """Pass the events to a function, now and as more are appended, for ever.

        A line that is no event, or an event that is refused, is named in the service's log.
        """
        while True:
            lines = await asyncio.to_thread(self._next_lines)
            if not lines:
                await asyncio.sleep(PAUSE)
            elif events := self._events(lines):
                await self._taken(take, events)

    def _next_lines(self) -> list[bytes]:
        """Read the next lines that are complete."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self.n_read:
                    log.info("%s: it is a new file", self.path)
                    self.n_read = self.n_lines = 0
                file.seek(self.n_read)
                lines: list[bytes] = []
                for line in file:
                    if not line.endswith(b"\n") or len(lines) == AT_ONCE:
                        break
                    lines.append(line)
        except FileNotFoundError:
            return []
        self.n_read += sum(map(len, lines))
        return lines

    def _events(self, lines: Sequence[bytes]) -> list[LiveEvent]:
        events = []
        for line in lines:
            self.n_lines += 1
            try:
                events.append(LiveEvent.model_validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                log.warning("%s:%d: %s: %s", self.path, self.n_lines, where, first["msg"])
        return events

    async def _taken(self, take: Take, events: Sequence[LiveEvent]) -> None:
        while True:
            try:
                taken = await take(events)
            except (OSError, Overloaded) as error:
                log.warning("%s: events wait to be written: %s", self.path, error)
                await asyncio.sleep(1)
                continue
            for each in taken.refused:
                log.warning("%s: event %s: %s", self.path, each.event_id, each.error)
            return
