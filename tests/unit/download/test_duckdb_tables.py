"""Local tables of DuckDB, Delta and Iceberg."""

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dayahead.core.errors import SourceError, UnreachableError
from dayahead.download import warehouses
from dayahead.download.duckdb_tables import open_delta
from dayahead.download.statements import Reading
from dayahead.download.warehouses import fetch_tables
from support.shop_tables import a_log, downloaded, of_csv, table_dataset
from support.sources import a_dataset

duckdb = pytest.importorskip("duckdb", reason="dayahead[duckdb]")


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def in_duckdb(path, table):
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute("CREATE OR REPLACE TABLE clicks AS SELECT * FROM given")
    return f"duckdb://{path}"


def in_delta(path, table, mode="append"):
    deltalake = pytest.importorskip("deltalake", reason="dayahead[delta]")
    half = len(table) // 2
    deltalake.write_deltalake(path, table.slice(half), mode=mode)
    deltalake.write_deltalake(path, table.slice(0, half), mode="append")
    return deltalake.DeltaTable(path)


CATALOGS = []
"""Of Iceberg, to be closed after a test."""


@pytest.fixture(autouse=True)
def _closed_catalogs():
    yield
    while CATALOGS:
        CATALOGS.pop().close()


def in_iceberg(folder, table):
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="dayahead[iceberg]")
    place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    catalog = sql.SqlCatalog("mine", **place)
    CATALOGS.append(catalog)
    catalog.create_namespace_if_not_exists("web")
    made = catalog.create_table("web.clicks", table.schema)
    made.append(table)
    return made


def test_duckdb_gives_the_events_of_the_same_rows_as_csv(tmp_path):
    url = in_duckdb(tmp_path / "shop.db", a_log())
    found, manifest = downloaded(table_dataset(url), tmp_path / "raw")
    assert found == of_csv(a_log(), tmp_path)
    assert [file["url"] for file in manifest["files"]] == ["shop.db"] * 2
    again, _ = downloaded(table_dataset("duckdb://shop.db", order=["seq"]), tmp_path / "raw")
    assert again == of_csv(a_log(), tmp_path, order=["seq"])


def test_delta_gives_the_events_of_the_same_rows_as_csv(tmp_path):
    in_delta(tmp_path / "clicks", a_log())
    dataset = table_dataset(tmp_path / "clicks", "delta", order=["seq"])
    found, manifest = downloaded(dataset, tmp_path / "raw")
    assert found == of_csv(a_log(), tmp_path, order=["seq"])
    assert {file["url"] for file in manifest["files"]} == {"clicks"}


@pytest.mark.long
def test_iceberg_gives_the_events_of_the_same_rows_as_csv(tmp_path):
    table = in_iceberg(tmp_path, a_log())
    table.delete("item = 3")
    dataset = table_dataset(table.metadata_location, "iceberg")
    rest = a_log().filter(pc.field("item") != 3)
    assert downloaded(dataset, tmp_path / "raw")[0] == of_csv(rest, tmp_path)


@pytest.mark.long
def test_a_catalog_is_configured_by_the_environment(tmp_path):
    in_iceberg(tmp_path, a_log())
    variables = {
        "PYICEBERG_CATALOG__MINE__URI": f"sqlite:///{tmp_path}/catalog.db",
        "PYICEBERG_CATALOG__MINE__WAREHOUSE": f"file://{tmp_path}/warehouse",
        "PYTHONPATH": os.pathsep.join(sys.path),  # a process of its own: they are read once
    }
    code = """
from dayahead.download.duckdb_tables import open_iceberg
from pathlib import Path
with open_iceberg("iceberg://mine/web.clicks", "shown", Path()) as table:
    print(*table.schema.names)
"""
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=os.environ | variables, capture_output=True, check=True)
    assert run.stdout.split() == [b"session", b"item", b"time", b"price", b"seq"]


def test_a_version_is_read_once(tmp_path, monkeypatch):
    table = in_delta(tmp_path / "clicks", a_log())
    iceberg = in_iceberg(tmp_path, a_log())
    datasets = [
        table_dataset(tmp_path / "clicks", "delta"),
        table_dataset(iceberg.metadata_location, "iceberg"),
    ]
    first = [fetch_tables(dataset) for dataset in datasets]
    with monkeypatch.context() as patch:
        patch.setattr(warehouses, "_write", lambda *_: pytest.fail("read again"))
        assert [fetch_tables(dataset) for dataset in datasets] == first
    table.delete("item = 3")
    assert fetch_tables(datasets[0]) != first[0]


def test_how_a_table_lies_on_the_disk_changes_no_byte(tmp_path):
    table = in_delta(tmp_path / "clicks", a_log())
    dataset = table_dataset(tmp_path / "clicks", "delta")
    before = [source.sha256 for source in fetch_tables(dataset)]
    table.optimize.compact()
    assert table.version() == 2
    assert [source.sha256 for source in fetch_tables(dataset)] == before


def test_rows_deleted_by_a_vector_are_left_out(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="dayahead[delta]")
    vectors = {"delta.enableDeletionVectors": "true"}
    deltalake.DeltaTable.create(tmp_path / "clicks", a_log().schema, configuration=vectors)
    in_delta(tmp_path / "clicks", a_log()).delete("item = 3")
    found, _ = downloaded(table_dataset(tmp_path / "clicks", "delta"), tmp_path / "raw")
    assert found == of_csv(a_log().filter(pc.field("item") != 3), tmp_path)


def test_records_and_lists_of_a_table(tmp_path):
    rows = [
        {"user": {"id": "b"}, "at": {"ms": 1772323200000}, "events": [{"item": 1}, {"item": 2}]},
        {"user": {"id": "a"}, "at": {"ms": 1772323100000}, "events": [{"item": 3}]},
    ]
    in_delta(tmp_path / "clicks", pa.Table.from_pylist(rows))
    dataset = a_dataset(
        source={"urls": [str(tmp_path / "clicks")], "format": "delta", "explode": "events"},
        columns={"session_id": "user.id", "item_id": {"column": "events.item", "type": "int"}},
        time={"column": "at.ms", "unit": "ms"},
    )
    found, manifest = downloaded(dataset, tmp_path / "raw")
    assert [(row["session_id"], row["item_id"]) for row in found] == [("a", 3), ("b", 1), ("b", 2)]
    assert [file["file"] for file in manifest["files"]] == [
        "2026-02-28.parquet", "2026-03-01.parquet"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT *\nFROM nothing", "Table with name nothing does not exist"),
        ("SELECT nope FROM clicks", 'Referenced column "nope" not found'),
        ("SELEC 1", "syntax error"),
        ("DELETE FROM clicks", "syntax error"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM 'https://host/a.parquet'", "disabled by configuration"),
        ("SELECT * FROM clicks WHERE false", "no row: expected some. Correct source.query"),
    ],
)
def test_what_is_wrong_with_a_query_is_named(tmp_path, query, message):
    url = in_duckdb(tmp_path / "shop.db", a_log())
    with pytest.raises(SourceError, match=message):
        fetch_tables(table_dataset(url, query=query))


def test_tables_that_are_not_there_are_named(tmp_path):
    (tmp_path / "junk.db").write_text("no database" * 1000)
    for name, message in (("none.db", "does not exist"), ("junk.db", "not a valid DuckDB")):
        with pytest.raises(UnreachableError, match=message):
            fetch_tables(table_dataset(f"duckdb://{tmp_path / name}"))
    pytest.importorskip("deltalake", reason="dayahead[delta]")
    with pytest.raises(UnreachableError, match="none: cannot be opened"):
        fetch_tables(table_dataset(tmp_path / "none", "delta"))
    pytest.importorskip("pyiceberg", reason="dayahead[iceberg]")
    for url in (tmp_path / "none.metadata.json", "iceberg://nowhere/web.clicks"):
        with pytest.raises(UnreachableError, match="cannot be opened"):
            fetch_tables(table_dataset(url, "iceberg"))


def test_a_column_that_is_not_there_is_named(tmp_path):
    in_delta(tmp_path / "clicks", a_log().drop_columns(["item"]))
    with pytest.raises(SourceError, match="no column item; it has session, time, price, seq"):
        fetch_tables(table_dataset(tmp_path / "clicks", "delta"))
    in_delta(tmp_path / "others", a_log())
    with pytest.raises(SourceError, match=r"no column id; it has .*source\.order"):
        fetch_tables(table_dataset(tmp_path / "others", "delta", order=["id"]))


def test_delta_without_duckdb_names_what_is_missing(tmp_path, monkeypatch):
    in_delta(tmp_path / "clicks", a_log())
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SourceError, match="needs the package duckdb: pip install"):
        fetch_tables(table_dataset(tmp_path / "clicks", "delta"))


def test_a_column_with_a_dot_in_its_name_orders_rows(tmp_path):
    rows = pa.table({"item": ["a", "b", "c"], "time": [1, 1, 1], "visit.n": [3, 2, 1]})
    in_delta(tmp_path / "clicks", rows)
    with open_delta(str(tmp_path / "clicks"), "shown", tmp_path) as table:
        (batch,) = table.read(Reading(["item"], "time", ["visit.n"]))
    assert batch["item"].to_pylist() == ["c", "b", "a"]
