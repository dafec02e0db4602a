"""A log of events or lists beside the service that writes it: finding users, and erasing them."""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from dayahead.core.errors import BusyError, DataError
from dayahead.live.list_log import DEFAULT_LISTS, LISTS
from dayahead.live.sqlite_log import EVENTS
from dayahead.live.table_file import IN_USE, TableFile

OF_USERS = "user IN (SELECT value FROM json_each(?))"
OF_SESSIONS = "session IN (SELECT value FROM json_each(?))"
REMOVED_AT_ONCE = 10_000


def named_in(path: Path, users: Collection[str]) -> tuple[Counter[str], set[str]]:
    """Return the number of rows that name each user, and the sessions that have one of these.

    Raises:
        DataError: as `reading` does.
    """
    counts: Counter[str] = Counter()
    sessions = set()
    kind = _kind_of(path)
    with kind.reading(path) as connection:
        query = f"SELECT user, session, count(*) FROM {kind.table} WHERE {OF_USERS} GROUP BY 1, 2"  # noqa: S608
        for user, session, n_events in connection.execute(query, (_array(users),)):
            counts[user] += n_events
            sessions.add(session)
    return counts, sessions


def count_events(path: Path, users: Collection[str], sessions: Collection[str]) -> int:
    """Count the rows that name one of the users, or are of one of the sessions.

    Raises:
        DataError: as `reading` does.
    """
    kind = _kind_of(path)
    with kind.reading(path) as connection:
        query = f"SELECT count(*) FROM {kind.table} WHERE {OF_USERS} OR {OF_SESSIONS}"  # noqa: S608
        [n_events] = connection.execute(query, (_array(users), _array(sessions))).fetchone()
    return int(n_events)


def erase(path: Path, users: Collection[str], sessions: Collection[str]) -> bool:
    """Remove the rows that name one of the users, or are of one of the sessions.

    Rows that arrive meanwhile may stay.

    Returns:
        Whether nothing of them is left in the log's files. Where another process writes the log for
        longer than BUSY_SECONDS, rows may be; where one reads it, earlier versions of its pages.

    Raises:
        DataError: the log is damaged, or the disk is full.
    """
    kind = _kind_of(path)
    try:
        opened = kind.connected(path)
    except BusyError:
        return False
    with closing(opened) as connection:
        try:
            query = f"SELECT position FROM {kind.table} WHERE {OF_USERS} OR {OF_SESSIONS}"  # noqa: S608
            positions = connection.execute(query, (_array(users), _array(sessions))).fetchall()
            for start in range(0, len(positions), REMOVED_AT_ONCE):
                # A few at a time: what a service has to write waits meanwhile.
                with connection as transaction:
                    transaction.execute("BEGIN IMMEDIATE")
                    some = positions[start : start + REMOVED_AT_ONCE]
                    transaction.executemany(f"DELETE FROM {kind.table} WHERE position = ?", some)  # noqa: S608
            # Rows that have been moved between pages leave copies, which secure_delete misses.
            connection.execute("VACUUM")
            # The journal holds earlier pages until it is written back.
            [is_busy, *_] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if error.sqlite_errorcode in IN_USE:
                return False
            raise DataError(
                f"{path}: rows could not be removed from this log ({error}); make room or "
                f"restore it, and run this again"
            ) from None
    return not is_busy


def _kind_of(path: Path) -> TableFile:
    return LISTS if path.name == Path(DEFAULT_LISTS).name else EVENTS


def _array(texts: Collection[str]) -> str:
    return json.dumps(sorted(texts), ensure_ascii=False)
