"""Files of one SQLite table that services write, while others read them or erase rows."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dayahead.core.errors import BusyError, DataError

BUSY_SECONDS = 30
IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True)
class TableFile:
    """A kind of file; its table has the columns position, session and user."""

    table: str
    version: int
    """Of the table; the file holds it too."""
    statements: tuple[str, ...]
    """Make the table where it is missing."""
    name: str
    """For messages: what is expected, and who writes it."""
    cure: str
    """What to do where the file is something else."""

    def connected(self, path: Path) -> sqlite3.Connection:
        """Open a file; what is written is on disk when a transaction is committed.

        Raises:
            BusyError: another process has locked it for BUSY_SECONDS.
            DataError: it is no such file.
        """
        connection = None
        try:
            # Without isolation level, transactions begin where we say. One thread at a time writes.
            connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if getattr(error, "sqlite_errorcode", None) in IN_USE:
                raise BusyError(
                    f"{path}: another process has written it for {BUSY_SECONDS:g} seconds "
                    f"({error}); run this again later"
                ) from None
            raise DataError(f"{path}: expected {self.name} ({error}); {self.cure}") from None
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [n_tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version != (self.version if n_tables else 0):
            raise sqlite3.DatabaseError(f"version {version} with {n_tables} tables")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # What is removed is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in self.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self.version}")

    @contextmanager
    def reading(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open a file for queries; a service may write it meanwhile.

        Raises:
            DataError: it is missing, damaged or no such file, which may also show in the block.
        """
        try:
            # Not mode=ro, which leaves files beside a log that no service has open.
            address = f"{path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as connection:
                connection.execute("PRAGMA query_only = ON")
                [version] = connection.execute("PRAGMA user_version").fetchone()
                if version != self.version:
                    raise sqlite3.DatabaseError(f"version {version}, expected {self.version}")
                yield connection
        except sqlite3.Error as error:
            raise DataError(
                f"{path}: expected {self.name}, but it cannot be read ({error}); restore it, or "
                f"move it away and delete it yourself"
            ) from None
