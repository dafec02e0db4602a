"""The log of events of one service, as an SQLite file."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.errors import BusyError
from dayahead.live.clock import Clock
from dayahead.live.event_log import Event, EventLog
from dayahead.live.table_file import TableFile

TABLE = """
CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    user TEXT,
    time INTEGER NOT NULL,
    fields TEXT NOT NULL,
    arrived INTEGER NOT NULL
) STRICT
"""
EVENTS = TableFile(
    table="events",
    version=1,
    statements=(TABLE,),
    name="a log of events as `dayahead serve --live` writes it",
    cure="give another --events-log, or move the file away",
)
SELECT = (
    "SELECT id, session, user, time, fields, position, arrived FROM events WHERE position > ? "
    "ORDER BY position"
)
INSERT = (
    "INSERT INTO events (id, session, user, time, fields, arrived) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
PRUNE = (
    "DELETE FROM events WHERE position IN (SELECT position FROM events ORDER BY position LIMIT ?) "
    "AND arrived < ?"
)
PRUNED_AT_ONCE = 10_000
LOCK_SECONDS = 0.05


class SqliteLog(EventLog):
    """Events in a file, which one service at a time writes.

    Args:
        path: of the file; it is made, with its folder, where it is missing.
        clock: gives the times of arrival, and is not before the last one that the file holds.

    Raises:
        BusyError: another service uses the file.
        DataError: it is no log of events.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__()
        self.path = path
        self.clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self._owner = FileLock(path.with_name(f"{path.name}.lock"))
        try:
            self._owner.acquire(timeout=0)
        except Timeout:
            raise BusyError(
                f"{path}: another service uses this log of events; stop it, give another "
                f"--events-log, or let several share a Redis stream (redis://...)"
            ) from None
        try:
            self._connection = EVENTS.connected(path)
            [last] = self._connection.execute("SELECT max(arrived) FROM events").fetchone()
        except BaseException:
            self._owner.release()
            raise
        clock.advance(last or 0)

    def append(self, events: Sequence[Event]) -> list[bool]:
        """Write events, deliver those that are new, and say of each whether it is.

        Raises:
            OSError: they could not be written; none is, and none is delivered.
        """
        with self._lock:
            try:
                written = self._written(events)
            except sqlite3.Error as error:
                raise OSError(f"{self.path}: events could not be written: {error}") from error
            self.deliver([each for each in written if each.position])
        return [each.position > 0 for each in written]

    def _written(self, events: Sequence[Event]) -> list[Event]:
        """Write events; return them with their positions, which only new ones have."""
        written = []
        with self._connection as transaction:  # commits, or rolls back
            transaction.execute("BEGIN IMMEDIATE")
            for event in events:
                arrived = self.clock.arrival(event.time)
                fields = json.dumps(event.fields)
                row = (event.id, event.session, event.user, event.time, fields, arrived)
                found = transaction.execute(INSERT, row)
                position = int(found.lastrowid or 0) if found.rowcount else 0
                written.append(event._replace(position=position, arrived=arrived))
        return written

    def complete_until(self) -> int:
        """Return a time before which no event will arrive any more."""
        # Times of arrival are given under the lock, so what waits for it does not arrive earlier.
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return 0  # a slow disk must not stop recommendations; the tick comes later
        try:
            return self.clock.now()
        finally:
            self._lock.release()

    def read(self, after: int = 0) -> Iterator[Event]:
        """Yield the events after a position, in their order."""
        with EVENTS.reading(self.path) as connection:
            for row in connection.execute(SELECT, (after,)):
                event = Event(*row)
                yield event._replace(fields=json.loads(row[4]))

    def prune(self, before: int) -> int:
        """Remove the events that arrived before a time; return their number."""
        total = 0
        while True:
            # A few at a time: what is to be written waits meanwhile.
            with self._lock:
                n_removed = self._connection.execute(PRUNE, (PRUNED_AT_ONCE, before)).rowcount
            total += n_removed
            if n_removed < PRUNED_AT_ONCE:
                return total

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
            self._owner.release()
