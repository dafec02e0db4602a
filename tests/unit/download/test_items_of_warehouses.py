"""One table of items as parquet, Delta, Iceberg, DuckDB and PostgreSQL: the same items."""

from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.dataset.manifest import RawManifest
from dayahead.download.stage import download
from support.postgres_servers import running_postgres
from support.sources import a_dataset

SCHEMA = pa.schema(
    [
        *(("sku", pa.string()), ("since", pa.timestamp("us", "UTC")), ("brand", pa.string())),
        *(("price", pa.decimal128(10, 2)), ("title", pa.string())),
        *(("pixels", pa.list_(pa.float32())), ("start", pa.date32()), ("stop", pa.date32())),
    ]
)


def moment(day, hour=8):
    return datetime(2026, 1, day, hour, tzinfo=UTC)


ROWS = [
    ("002", moment(2), "b", Decimal("2.50"), "Red shoe", [1.0, 2.0], date(2026, 1, 1), None),
    ("017", moment(1), None, None, "Blue hat", None, None, date(2026, 6, 1)),
    ("017", moment(3), "ä", Decimal("1.25"), "Blue hat", [0.5, -1.0], None, date(9999, 12, 31)),
]
TABLE = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA)
ITEMS = {
    "item_id": {"column": "sku", "type": "string"},
    "time": {"column": "since"},
    "available_from": "start",
    "available_until": "stop",
    "features": {
        "brand": {"kind": "categorical", "column": "brand"},
        "price": {"kind": "log_number", "column": "price"},
    },
    "vectors": {
        "words": {"kind": "text", "columns": ["title", "brand"]},
        "image": {"kind": "vector", "column": "pixels"},
    },
}


def read(folder, *, timed=True, **source):
    """The rows of the table, by item and time, and the manifest."""
    (folder / "log.csv").write_text("session,item,time\na,002,2026-01-01\na,017,2026-01-01\n")
    dataset = a_dataset(
        source={"urls": [f"{folder}/log.csv"]},
        columns={"item_id": {"column": "item", "type": "string"}},
        items={**ITEMS, "source": source} | ({} if timed else {"time": None}),
    )
    download(dataset, "mine", folder / "raw")
    parts = [pq.read_table(path) for path in sorted((folder / "raw").glob("items-*.parquet"))]
    rows = [row for part in parts for row in part.drop_columns(["row"]).to_pylist()]
    in_time = sorted(rows, key=lambda row: (row["item_id"], row.get("event_time")))
    return (in_time if timed else rows), RawManifest.read(folder / "raw")


@pytest.fixture
def expected(tmp_path):
    pq.write_table(TABLE, tmp_path / "items.parquet")
    rows, _ = read(tmp_path, urls=[f"{tmp_path}/items.parquet"], format="parquet")
    assert [row["brand"] for row in rows] == ["b", None, "ä"]
    assert [row["price"] for row in rows] == [2.5, None, 1.25]
    return rows


def delta(folder):
    pytest.importorskip("deltalake", reason="dayahead[delta]").write_deltalake(
        folder / "items", TABLE
    )
    return {"urls": [f"{folder}/items"], "format": "delta"}


def iceberg(folder):
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="dayahead[iceberg]")
    place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    with closing(sql.SqlCatalog("mine", **place)) as catalog:
        catalog.create_namespace("shop")
        made = catalog.create_table("shop.items", SCHEMA)
        made.append(TABLE)
    return {"urls": [made.metadata_location], "format": "iceberg"}


def duckdb(folder):
    library = pytest.importorskip("duckdb", reason="dayahead[duckdb]")
    with library.connect(str(folder / "shop.db")) as connection:
        connection.register("given", TABLE)
        connection.execute("CREATE TABLE items AS SELECT * FROM given")
    return {"urls": [f"duckdb://{folder}/shop.db"], "format": "sql", "query": "FROM items"}


@pytest.mark.parametrize("write", [delta, iceberg, duckdb])
def test_the_items_are_those_of_parquet(tmp_path, expected, write):
    rows, manifest = read(tmp_path, **write(tmp_path))
    assert rows == expected
    assert len(manifest.items.files) == 3  # one for each day


@pytest.mark.parametrize("write", [delta, iceberg, duckdb])
def test_without_times_the_order_of_the_source_says_which_row_holds(tmp_path, write):
    source = write(tmp_path)
    rows, manifest = read(tmp_path, timed=False, **source, order=["since"])
    assert [(row["item_id"], row["brand"]) for row in rows] == [
        ("002", "b"),
        ("017", None),
        ("017", "ä"),
    ]
    assert {each.check: each.found for each in manifest.items.quality}["replaced"] == 1


@pytest.mark.long
def test_postgresql_with_its_arrays_and_infinite_dates(tmp_path, expected):
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="dayahead[postgresql]")
    with running_postgres() as url:
        with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE items (sku text, since timestamptz, brand text, price numeric(10,2),"
                " title text, pixels real[], start date, stop timestamp)"
            )
            cursor.execute(
                "INSERT INTO items VALUES"
                " ('017', '2026-01-03 08:00+00', 'ä', 1.25, 'Blue hat', '{0.5,-1}', NULL,"
                " 'infinity'), ('002', '2026-01-02 09:00+01', 'b', 2.5, 'Red shoe', '{1,2}',"
                " '2026-01-01', NULL), ('017', '2026-01-01 08:00+00', NULL, NULL, 'Blue hat',"
                " NULL, NULL, '2026-06-01')"
            )
        source = {"urls": [url], "format": "sql", "query": "SELECT * FROM items"}
        rows, manifest = read(tmp_path, **source)
        query = "SELECT sku, since, brand, price, title, pixels, stop, DATE '-infinity' AS start"
        query += " FROM items"
        early, _ = read(tmp_path, **{**source, "query": query})
    assert rows == expected
    assert len(manifest.items.files) == 3
    assert {row["available_from"].year for row in early} == {1900}
