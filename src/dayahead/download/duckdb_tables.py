"""Tables that DuckDB puts in order, on the disk where memory is short: its own, Delta, Iceberg."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from dayahead.core.errors import SourceError
from dayahead.download.nested import roots
from dayahead.download.statements import Reading, select, with_text
from dayahead.download.table import Table, library, opening, reason

ICEBERG = "iceberg://"
"""Begin of addresses of tables in a catalog: iceberg://catalog/namespace.table."""
_BATCH = 1 << 16
_LOG = "log"
_EXTENSIONS = ("autoinstall_known_extensions", "autoload_known_extensions")
_CLOSED = ("python_enable_replacements", *_EXTENSIONS)
_ADVICE = "Check the address in source.urls and the credentials in the environment"


@contextmanager
def open_duckdb(url: str, shown: str, query: str, scratch: Path) -> Iterator[Table]:
    """Open a database file, which nobody writes meanwhile, and check a query.

    Args:
        url: duckdb:///absolute/path or duckdb://path/from/here.
        shown: the address for messages.
        query: one SELECT. It reads nothing but the tables of the file.
        scratch: a folder for what does not fit into memory.

    Raises:
        SourceError: the query is wrong, or DuckDB is not installed.
        UnreachableError: the file is missing, none of DuckDB, or being written.
    """
    with opening(shown, "Check the address in source.urls, and who writes the file"):
        connection = _connected(scratch, url.removeprefix("duckdb://"))
    with connection:
        relation = f"({query}\n)"
        with _reporting(shown):
            schema = connection.sql(f"FROM {relation} AS q").limit(0).to_arrow_table().schema
        yield _ordered(connection, shown, relation, schema)


@contextmanager
def open_delta(url: str, shown: str, scratch: Path) -> Iterator[Table]:
    """Open the newest version of a Delta table; deletion vectors and mapped columns are read.

    Raises:
        SourceError: deltalake or DuckDB is not installed.
        UnreachableError: there is no such table.
    """
    deltalake = library("deltalake", "delta")
    with opening(shown, _ADVICE):
        table, connection = deltalake.DeltaTable(url), _connected(scratch)
        schema = pa.schema(table.schema().to_arrow())
    with connection:
        version = f"{table.metadata().id} {table.version()}"

        def scan(columns: list[str]) -> pa.RecordBatchReader:
            return pa.RecordBatchReader.from_stream(table.scan(columns=columns))

        yield _ordered(connection, shown, _LOG, schema, version, scan)


@contextmanager
def open_iceberg(url: str, shown: str, scratch: Path) -> Iterator[Table]:
    """Open the current snapshot of an Iceberg table.

    Args:
        url: a metadata.json, a folder with a version-hint.text, or a table of a catalog, which
            PYICEBERG_* variables or ~/.pyiceberg.yaml describe.
        shown: the address for messages.
        scratch: a folder for what does not fit into memory.

    Raises:
        SourceError: pyiceberg or DuckDB is not installed.
        UnreachableError: there is no such table.
    """
    catalogs, tables = (library(f"pyiceberg.{name}", "iceberg") for name in ("catalog", "table"))
    with ExitStack() as stack:
        with opening(shown, _ADVICE):
            if url.startswith(ICEBERG):
                parts = urlsplit(url)
                catalog = stack.enter_context(catalogs.load_catalog(parts.netloc))
                table = catalog.load_table(unquote(parts.path.strip("/")))
            else:
                table = tables.StaticTable.from_metadata(url)
            connection = stack.enter_context(_connected(scratch))
            schema, snapshot = table.schema().as_arrow(), table.current_snapshot()
        version = f"{table.metadata.table_uuid} {snapshot and snapshot.snapshot_id}"

        def scan(columns: list[str]) -> pa.RecordBatchReader:
            return table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()

        yield _ordered(connection, shown, _LOG, schema, version, scan)


def _connected(scratch: Path, path: str = ":memory:") -> Any:  # noqa: ANN401
    duckdb = library("duckdb", "duckdb")
    config = dict.fromkeys(_CLOSED, "false")
    connection = duckdb.connect(path, read_only=path != ":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    folder = str(scratch / "duckdb").replace("'", "''")
    connection.execute(f"SET temp_directory = '{folder}'")
    # A query reads tables, no files and no addresses; nothing may be opened any more.
    connection.execute("SET enable_external_access = false")
    return connection


@contextmanager
def _reporting(shown: str) -> Iterator[None]:
    """Raise SourceError for what DuckDB raises."""
    duckdb = library("duckdb", "duckdb")
    try:
        yield
    except duckdb.Error as error:
        raise SourceError(f"{shown}: cannot be read: {reason(error)}. Correct it") from None


def _ordered(
    connection: Any,  # noqa: ANN401
    shown: str,
    relation: str,
    found: pa.Schema,
    version: str = "",
    scan: Callable[[list[str]], pa.RecordBatchReader] | None = None,
) -> Table:
    """Return a query, or the table `_LOG`, whose rows `scan` reads, once."""
    as_text = [each.name for each in found if pa.types.is_interval(each.type)]
    schema = with_text(found, as_text)

    def read(reading: Reading) -> Iterator[pa.RecordBatch]:
        statement = select(relation, schema, reading, as_text)
        with _reporting(shown):
            if scan is not None:
                needed = [*reading.columns, reading.time, *reading.order]
                connection.register(_LOG, scan(roots(needed, found.names, None)))
            yield from connection.sql(statement).to_arrow_reader(_BATCH)

    return Table(schema, read, version)
