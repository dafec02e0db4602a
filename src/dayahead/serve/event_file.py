"""A file to which another process appends events, one JSON object a line."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dayahead.serve.messages import IngestResult, LiveEvent, misspelt
from dayahead.serve.micro_batches import Overloaded

AT_ONCE = 1_000
"""Lines that are read at once."""
PAUSE = 0.2
"""Seconds until more is looked for."""
log = logging.getLogger(__name__)
Take = Callable[[Sequence[LiveEvent]], Awaitable[IngestResult]]


@dataclass
class EventFile:
    """Events in a file that grows; one that is replaced or shortened is read from its start.

    It is read from its start when a service starts: events that are in the log already are left
    out there.
    """

    path: Path
    n_read: int = 0
    """Bytes read so far."""
    n_lines: int = 0
    inode: int = 0
    fault: str = ""
    """The last error, which is logged once; empty after the file could be read."""

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
                found = os.fstat(file.fileno())
                if found.st_size < self.n_read or found.st_ino != self.inode:
                    self.n_read, self.n_lines, self.inode = 0, 0, found.st_ino
                file.seek(self.n_read)
                lines: list[bytes] = []
                for line in file:
                    if not line.endswith(b"\n") or len(lines) == AT_ONCE:
                        break
                    lines.append(line)
        except OSError as error:
            if str(error) != self.fault and not isinstance(error, FileNotFoundError):
                log.warning("events cannot be read: %s", error)
            self.fault = str(error)
            return []
        self.fault = ""
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
                what = first["msg"] + misspelt(first)
                log.warning("%s:%d: %s: %s", self.path, self.n_lines, where, what)
        return events

    async def _taken(self, take: Take, events: Sequence[LiveEvent]) -> None:
        while True:
            try:
                taken = await take(events)
            except (OSError, Overloaded) as error:
                log.warning("%s: events wait to be written: %s", self.path, error)
                await asyncio.sleep(1)
                continue
            if taken.refused:
                first, n_refused = taken.refused[0], len(taken.refused)
                about = (self.path, n_refused, first.event_id, first.error)
                log.warning("%s: %d events are refused; the first, %s: %s", *about)
            return
