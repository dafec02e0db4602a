"""The result of a query to PostgreSQL, streamed as Arrow (ADBC) in a read-only transaction."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from dayahead.core.errors import SourceError, UnreachableError
from dayahead.download.statements import Reading, select, with_text
from dayahead.download.table import Table, library, opening, reason

SECONDS = 30
"""Time within which a server must answer, unless the address or PGCONNECT_TIMEOUT says another."""
_AS_THEY_ARE = (
    *("int2", "int4", "int8", "float4", "float8", "bool"),
    *("text", "varchar", "timestamp", "timestamptz", "date"),
)
"""Types that are read as they are; others become text, as PostgreSQL writes them."""
_SETTINGS = (
    # All statements of the transaction see one state of the database.
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
)


@contextmanager
def open_postgresql(url: str, shown: str, query: str) -> Iterator[Table]:
    """Connect and check a query.

    Args:
        url: as libpq reads it; what it lacks comes from PG* variables and ~/.pgpass.
        shown: the address for messages.
        query: one SELECT.

    Raises:
        SourceError: the query is wrong, or the driver is not installed.
        UnreachableError: the server refuses, or does not answer.
    """
    advice = "Check the address in source.urls, user and password, and that the server runs"
    dbapi = library("adbc_driver_postgresql.dbapi", "postgresql")
    with opening(shown, advice):
        connection = dbapi.connect(_with_timeout(url))
    with connection, connection.cursor() as cursor:
        with _reporting(shown):
            for statement in _SETTINGS:
                cursor.execute(statement)
            found = cursor.adbc_execute_schema(query)
        kinds = {each.name: (each.metadata or {}).get(b"POSTGRESQL:type", b"") for each in found}
        as_text = [name for name, kind in kinds.items() if kind.decode() not in _AS_THEY_ARE]
        schema = with_text(found, as_text)

        def read(reading: Reading) -> Iterator[pa.RecordBatch]:
            # ADBC wraps infinite dates and times around, to the other end of all times.
            relation, binary = f"({query}\n)", ' COLLATE "C"'
            statement = select(relation, schema, reading, as_text, binary, has_infinity=True)
            with _reporting(shown):
                cursor.execute(statement)
                yield from cursor.fetch_record_batch()

        yield Table(schema, read)


def _with_timeout(url: str) -> str:
    if "connect_timeout" in url or "PGCONNECT_TIMEOUT" in os.environ:
        return url
    return f"{url}{'&' if '?' in url else '?'}connect_timeout={SECONDS}"


@contextmanager
def _reporting(shown: str) -> Iterator[None]:
    """Raise SourceError for errors of a query, UnreachableError for those of the connection."""
    driver = library("adbc_driver_manager", "postgresql")
    try:
        yield
    except (driver.Error, pa.ArrowException, OSError) as error:
        if "ERROR:" in str(error):
            found = reason(error).partition("ERROR:")[2].strip()
            raise SourceError(f"{shown}: source.query fails: {found}. Correct it") from None
        raise UnreachableError(f"{shown}: connection lost: {reason(error)}. Run again") from None
