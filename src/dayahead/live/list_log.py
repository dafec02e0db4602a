"""The log of served lists: what a service has shown to whom, written beside its answers."""

import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dayahead.core.columns import SECOND
from dayahead.live.clock import Clock
from dayahead.live.table_file import TableFile

DEFAULT_LISTS: Final = "live/lists.sqlite"
"""Where `dayahead serve --log-lists` writes, in the project's folder."""
N_LOGGED: Final = 20
"""Number of items of a list that are kept, the best ones."""
MOST_WAITING: Final = 100_000
"""Number of lists that may wait to be written; further ones are lost."""
WRITE_SECONDS: Final = 1.0
"""Seconds for which lists are collected, to be written together."""
PRUNE_SECONDS: Final = 3600
PRUNED_AT_ONCE: Final = 10_000
TABLE = """
CREATE TABLE IF NOT EXISTS lists (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    user TEXT,
    time INTEGER NOT NULL,
    variant TEXT NOT NULL,
    model TEXT NOT NULL,
    items TEXT NOT NULL
) STRICT
"""
LISTS = TableFile(
    table="lists",
    version=1001,
    statements=(TABLE, "CREATE INDEX IF NOT EXISTS lists_time ON lists (time)"),
    name="a log of lists as `dayahead serve --log-lists` writes it",
    cure="move the file away",
)
INSERT = "INSERT INTO lists (session, user, time, variant, model, items) VALUES (?, ?, ?, ?, ?, ?)"
PRUNE = (
    "DELETE FROM lists WHERE position IN "
    "(SELECT position FROM lists WHERE time < ? ORDER BY time LIMIT ?)"
)
_log = logging.getLogger(__name__)


class ServedList(NamedTuple):
    """A list that a session was shown."""

    session: str
    user: str | None
    time: int
    """When it was served, microseconds since 1970."""
    variant: str
    model: str
    """Version of the model that made it."""
    items: Sequence[int | str]
    """Best first."""


class ListLog:
    """Writes lists on a thread of its own, so that no answer waits for it.

    What was added in the last second before the process is killed may be lost. Several services may
    write one file.

    Args:
        path: of the file; it is made, with its folder, where it is missing.
        clock: of the service.
        keep_seconds: how long lists are kept.

    Raises:
        DataError: it is no log of lists.
    """

    def __init__(self, path: Path, clock: Clock, keep_seconds: float) -> None:
        self.path = path
        self.on_lost: Callable[[int], None] = lambda _: None
        """Called with a number of lists that were not written."""
        self._clock = clock
        self._keep = int(keep_seconds * SECOND)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = LISTS.connected(path)
        self._waiting: queue.Queue[ServedList | None] = queue.Queue(MOST_WAITING)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)
        self._thread.start()

    def add(
        self, session: str, user: str | None, variant: str, model: str, items: Sequence[int | str]
    ) -> None:
        """Have a list written that is served now, see `ServedList`."""
        served = ServedList(session, user, self._clock.now(), variant, model, items[:N_LOGGED])
        try:
            self._waiting.put_nowait(served)
        except queue.Full:
            self.on_lost(1)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._is_closing.set()
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        is_open, prune_at = True, 0.0
        while is_open:
            batch = [self._waiting.get()]
            self._is_closing.wait(WRITE_SECONDS)
            with suppress(queue.Empty):
                while len(batch) < MOST_WAITING:
                    batch.append(self._waiting.get_nowait())
            is_open = None not in batch
            self._write([each for each in batch if each is not None])
            if time.monotonic() >= prune_at:
                self._prune()
                prune_at = time.monotonic() + PRUNE_SECONDS

    def _write(self, lists: Sequence[ServedList]) -> None:
        rows = [each._replace(items=json.dumps(each.items)) for each in lists]
        try:
            with self._connection as transaction:  # commits, or rolls back
                transaction.execute("BEGIN IMMEDIATE")
                transaction.executemany(INSERT, rows)
        except sqlite3.Error as error:
            self.on_lost(len(rows))
            _log.warning("%s: %d lists could not be written: %s", self.path, len(rows), error)

    def _prune(self) -> None:
        """Remove old lists, some at a time: other services have to write meanwhile."""
        before, n_removed = self._clock.now() - self._keep, PRUNED_AT_ONCE
        with suppress(sqlite3.Error):  # the next time, then
            while n_removed == PRUNED_AT_ONCE:
                found = self._connection.execute(PRUNE, (before, PRUNED_AT_ONCE))
                n_removed = found.rowcount
