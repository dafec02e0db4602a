"""Tables of warehouses, fetched as parquet files of a day each, which are then read like others."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from dayahead.core.cache import Cache, link_tree, recorded_hashes
from dayahead.core.columns import EVENT_TIME
from dayahead.core.errors import SourceError
from dayahead.core.fingerprints import fingerprint, package_version, sha256_of, source_fingerprint
from dayahead.core.project import cache_root
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.batches import check_columns
from dayahead.download.convert import ROOMS
from dayahead.download.days import days_of, write_days
from dayahead.download.duckdb_tables import open_delta, open_duckdb, open_iceberg
from dayahead.download.events import source_columns
from dayahead.download.nested import check_paths, roots
from dayahead.download.postgresql import open_postgresql
from dayahead.download.sources import Source, checked_url, recorded_path, shown_url
from dayahead.download.statements import Reading
from dayahead.download.table import Table

_log = logging.getLogger(__name__)


def fetch_tables(dataset: DatasetConfig) -> list[Source]:
    """Fetch the columns that a data set needs, of each of its tables, in the order of time.

    A version of a Delta or Iceberg table is read once. A query is run each time; days whose rows
    are the same as before are not converted again.

    Raises:
        SourceError: a table lacks a column, has no row at all or cannot be read, a query is wrong,
            or a package is missing.
        UnreachableError: a server or table cannot be reached.
        OSError: the cache cannot be written.
    """
    found = [source for url in dataset.source.urls for source in _fetched(url, dataset)]
    if not found:
        raise SourceError(
            f"{', '.join(map(shown_url, dataset.source.urls))}: no row: expected some. Correct "
            f"source.{'urls' if dataset.source.query is None else 'query'}"
        )
    return found


def _fetched(url: str, dataset: DatasetConfig) -> list[Source]:
    shown = checked_url(url)
    cache = Cache(cache_root() / "downloads")
    cache.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.folder, prefix=".", suffix=".partial") as name:
        scratch, rows = Path(name), Path(name, "rows")
        with _opened(url, shown, dataset, scratch) as table:
            prefix = _prefix(url, dataset, table.schema)
            key = _key(prefix, table.version)
            read = partial(_sources, url=url, shown=shown)
            if table.version and (found := cache.get(key, read)) is not None:
                return found
            _log.info("fetching %s", shown)
            rows.mkdir()
            _write(table, dataset, shown, rows)
            if not table.version:
                key = _key(prefix, {each.name: sha256_of(each) for each in rows.iterdir()})
        cache.remove_superseded(prefix, key)
        return cache.get_or_build(key, partial(link_tree, rows), read)


def _key(prefix: str, version: object) -> str:
    return f"{prefix}-{fingerprint({'version': version})[:16]}"


def _prefix(url: str, dataset: DatasetConfig, schema: pa.Schema) -> str:
    """Return the begin of the keys of what is read of a table."""
    settings = {
        "url": url,
        "query": dataset.source.query,
        "reading": repr(_reading(dataset, schema)),
        "unit": dataset.time.unit,
        "source": source_fingerprint(*ROOMS),
        "pyarrow": package_version("pyarrow"),
    }
    return fingerprint(settings)[:16]


def _opened(
    url: str, shown: str, dataset: DatasetConfig, scratch: Path
) -> AbstractContextManager[Table]:
    kind, query = dataset.source.format, (dataset.source.query or "").strip().rstrip(";")
    if kind == "delta":
        return open_delta(url, shown, scratch)
    if kind == "iceberg":
        return open_iceberg(url, shown, scratch)
    if url.startswith("duckdb:"):
        return open_duckdb(url, shown, query, scratch)
    return open_postgresql(url, shown, query)


def _reading(dataset: DatasetConfig, schema: pa.Schema) -> Reading:
    needed = roots(source_columns(dataset), schema.names, dataset.source.explode)
    return Reading(needed, dataset.time.column, dataset.source.order)


def _write(table: Table, dataset: DatasetConfig, shown: str, folder: Path) -> None:
    source, columns = dataset.source, source_columns(dataset)
    check_paths(columns, table.schema, source.explode, shown)
    check_columns(dict.fromkeys(source.order), table.schema.names, shown, "source.order")
    reading = _reading(dataset, table.schema)
    schema = pa.schema([table.schema.field(name) for name in reading.columns])
    has_times = EVENT_TIME in dataset.event_columns()
    days = days_of(schema, dataset.time.column, dataset.time.unit) if has_times else None

    def tables() -> Iterator[pa.Table]:
        with tqdm(unit="rows", unit_scale=True, desc="rows", disable=None) as bar:
            for batch in table.read(reading):
                bar.update(batch.num_rows)
                columns = [_of_any_length(column) for column in batch.columns]
                yield pa.Table.from_arrays(columns, names=reading.columns)

    write_days(folder, tables(), days)


def _of_any_length(column: pa.Array) -> pa.Array:
    """Return lists of one length as others: Arrow cannot read nulls among them from parquet."""
    is_fixed = pa.types.is_fixed_size_list(column.type)
    return column.cast(pa.list_(column.type.value_type)) if is_fixed else column


def _sources(folder: Path, url: str, shown: str) -> list[Source]:
    hashes = recorded_hashes(folder)
    scheme, is_url, path = url.partition("://")
    is_local = not is_url or scheme in ("duckdb", "file")
    recorded = recorded_path(path or url) if is_local else shown
    return [
        Source(
            recorded,
            name,
            f"{shown}: {Path(name).stem}",
            (folder / name).stat().st_size,
            hashes[name],
            folder / name,
        )
        for name in sorted(hashes)
    ]
