"""Tables of warehouses where their readers are not installed."""

import sys

import pytest

from dayahead.core.errors import SourceError
from dayahead.download.warehouses import fetch_tables
from support.shop_tables import table_dataset


@pytest.mark.parametrize(
    ("url", "kind", "module", "extra"),
    [
        ("duckdb://shop.db", "sql", "duckdb", "duckdb"),
        ("postgresql://host/db", "sql", "adbc_driver_postgresql.dbapi", "postgresql"),
        ("clicks", "delta", "deltalake", "delta"),
        ("a.metadata.json", "iceberg", "pyiceberg.catalog", "iceberg"),
    ],
)
def test_the_extra_that_is_missing_is_named(monkeypatch, url, kind, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SourceError, match=rf"pip install 'dayahead\[{extra}\]'"):
        fetch_tables(table_dataset(url, kind))
