"""The log of events of one service, as an SQLite file."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.errors import BusyError, DataError
from dayahead.live.clock import Clock
from dayahead.live.event import Event
from dayahead.live.event_log import EventLog

VERSION = 1
"""Version of the table, which the file holds too."""
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
BUSY_SECONDS = 30
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
        self._lock = threading.RLock()
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
            self._connection = connected(path)
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
        with reading(self.path) as connection:
            for row in connection.execute(SELECT, (after,)):
                event = Event(*row)
                yield event._replace(fields=json.loads(row[4]))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Deliver nothing in this block."""
        with self._lock:
            yield

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


def connected(path: Path) -> sqlite3.Connection:
    """Open a log of events; what it writes is on disk when a transaction is committed.

    Raises:
        DataError: it is no log of events.
    """
    # Without isolation level, transactions begin where we say. One thread at a time has the lock.
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [n_tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version != (VERSION if n_tables else 0):
            raise sqlite3.DatabaseError(f"version {version} with {n_tables} tables")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # What is removed is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(TABLE)
            connection.execute(f"PRAGMA user_version = {VERSION}")
    except sqlite3.Error as error:
        connection.close()
        raise DataError(
            f"{path}: expected a log of events as `dayahead serve --live` writes it ({error}); "
            f"give another --events-log, or move the file away"
        ) from None
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a log for queries; a service may write it meanwhile.

    Raises:
        DataError: it is missing, damaged or no log of events, which may also show in the block.
    """
    try:
        # Not mode=ro, which leaves files beside a log that no service has open.
        address = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise sqlite3.DatabaseError(f"version {version}, expected {VERSION}")
            yield connection
    except sqlite3.Error as error:
        raise DataError(
            f"{path}: expected a log of events as `dayahead serve --live` writes it, but it cannot "
            f"be read ({error}); restore it, or move it away and delete it yourself"
        ) from None
