"""Queries to a real PostgreSQL server."""

from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

import pyarrow as pa
import pytest

from dayahead.core.errors import SourceError, UnreachableError
from dayahead.core.project import cache_root
from dayahead.download import postgresql
from dayahead.download.postgresql import open_postgresql
from dayahead.download.statements import Reading
from dayahead.download.warehouses import fetch_tables
from support.postgres_servers import PASSWORD, USER, running_postgres
from support.shop_tables import a_log, downloaded, of_csv, table_dataset

dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="dayahead[postgresql]")

SECRETS = (PASSWORD, quote(PASSWORD, safe=""), *PASSWORD.split())


@pytest.fixture(scope="module")
def server():
    with running_postgres() as url:
        with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("clicks", a_log())
        yield url


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def execute(url, *statements):
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.long
def test_the_events_are_those_of_the_same_rows_as_csv(server, tmp_path):
    found, manifest = downloaded(table_dataset(server), tmp_path / "raw")
    assert found == of_csv(a_log(), tmp_path)
    days = [file["file"] for file in manifest["files"]]
    assert days == ["2026-03-01.parquet", "2026-03-02.parquet"]
    ordered, _ = downloaded(table_dataset(server, order=["seq"]), tmp_path / "raw")
    assert ordered == of_csv(a_log(), tmp_path, order=["seq"])
    assert ordered != found


def test_neither_order_nor_layout_of_the_table_changes_a_byte(server, tmp_path):
    files = downloaded(table_dataset(server), tmp_path / "raw")[1]["files"]
    query = "SELECT * FROM clicks ORDER BY item DESC -- the newest first\n;"
    assert downloaded(table_dataset(server, query=query), tmp_path / "raw")[1]["files"] == files


def test_a_day_more_leaves_the_days_before_as_they_were(server, tmp_path):
    execute(server, "CREATE TABLE more AS SELECT * FROM clicks")
    dataset = table_dataset(server, query="SELECT * FROM more")
    before = downloaded(dataset, tmp_path / "raw")[1]["parts"]
    execute(server, "INSERT INTO more VALUES ('s9', 1, '2026-03-04 10:00+00', 1, 0)")
    after = downloaded(dataset, tmp_path / "raw")[1]["parts"]
    assert after[:2] == before
    assert len(after) == 3


def test_every_type_is_read_or_becomes_text(server):
    query = """SELECT 3.50::numeric(10,2) AS numeric, '12:00'::time AS time, 'x '::char(3) AS char,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS uuid, '{"x": 1}'::jsonb AS jsonb,
        interval '1 day' AS interval, ARRAY[1, 2] AS list, inet '1.2.3.4' AS inet,
        'moo'::name AS name, 7::int2 AS int2, true AS bool, NULL AS nothing,
        date '2026-03-01' AS date"""
    with open_postgresql(server, "shown", query) as table:
        names = table.schema.names
        (batch,) = table.read(Reading(names, "int2"))
    assert batch.to_pylist() == [
        {
            **{"numeric": "3.50", "time": "12:00:00", "char": "x", "jsonb": '{"x": 1}'},
            **{"uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "interval": "1 day"},
            **{"list": "{1,2}", "inet": "1.2.3.4/32", "name": "moo", "int2": 7, "bool": True},
            **{"nothing": None, "date": pa.scalar(20513, pa.date32()).as_py()},
        }
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT *\nFROM nothing", 'source.query fails: relation "nothing" does not exist LINE 2'),
        ("SELECT nope FROM clicks", 'column "nope" does not exist LINE 1'),
        ("SELECT session FROM clicks", "no column item, time, price; it has session"),
        ("SELECT session, item/(item-item) AS item, time, price FROM clicks", "division by zero"),
        ("DELETE FROM clicks RETURNING *", "syntax error"),
        ("SELECT 1; DROP TABLE clicks", "cannot insert multiple commands"),
        (
            "SELECT *, nextval('numbers') AS n FROM clicks",
            "cannot execute nextval.. in a read-only",
        ),
        ("SELECT * FROM clicks WHERE false", "no row: expected some. Correct source.query"),
    ],
)
def test_what_is_wrong_with_a_query_is_named(server, query, message):
    execute(server, "CREATE SEQUENCE IF NOT EXISTS numbers")
    columns = ("n",) if "nextval" in query else ()
    with pytest.raises(SourceError, match=message) as caught:
        fetch_tables(table_dataset(server, query=query, order=columns))
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pa%2F", "pb%2F", "password authentication failed"),
        ("/postgres", "/nobody", 'database "nobody" does not exist'),
        ("@127.0.0.1", "@127.0.0.2", "Connection refused"),
        ("@127.0.0.1", "@no.invalid", "cannot be opened"),
        ("/postgres", "/postgres?pasword=hush", "invalid URI query parameter"),
        (quote(PASSWORD, safe=""), PASSWORD, "not a URL: percent-encode"),
    ],
)
def test_no_message_holds_the_password(server, old, new, message):
    with pytest.raises(SourceError, match=message) as caught:
        fetch_tables(table_dataset(server.replace(old, new)))
    assert not any(secret in str(caught.value) for secret in (*SECRETS, "hush"))


def test_the_password_may_be_in_the_environment(server, tmp_path, monkeypatch):
    place = server.partition("@")[2]
    monkeypatch.setenv("PGUSER", USER)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    _, manifest = downloaded(table_dataset(f"postgresql://{place}"), tmp_path / "raw")
    assert manifest["files"][0]["url"] == f"postgresql://{place}"
    _, manifest = downloaded(table_dataset(server), tmp_path / "raw")
    assert manifest["files"][0]["url"] == f"postgresql://***@{place}"
    assert not any(secret in (tmp_path / "raw/manifest.json").read_text() for secret in SECRETS)


@pytest.mark.long
def test_a_lost_connection_leaves_nothing_half_written(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_ROOT", str(tmp_path))
    query = """SELECT 's' AS session, g AS item, now() AS time, g AS price,
        repeat('x', 200) AS long FROM generate_series(1, 400000) AS g"""
    dataset = table_dataset(server, query=query, where={"long": ["x"]})
    end = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE query LIKE 'COPY%'"""
    sizes = []

    @contextmanager
    def opened(*given):
        def cut(reading):
            for batch in table.read(reading):
                yield batch
                sizes.append(len(batch))
                execute(server, end)

        with open_postgresql(*given) as table:
            yield replace(table, read=cut)

    monkeypatch.setattr("dayahead.download.warehouses.open_postgresql", opened)
    with pytest.raises(UnreachableError, match="connection lost"):
        fetch_tables(dataset)
    assert 0 < sum(sizes) < 400_000
    found = [path.name for path in (cache_root() / "downloads").iterdir()]
    assert set(found) <= {"locks"}


def test_a_silent_server_is_left_unless_the_user_says_how_long_to_wait(monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    timed = postgresql._with_timeout
    assert timed("postgresql://h/d") == "postgresql://h/d?connect_timeout=30"
    assert timed("postgresql://h/d?a=b") == "postgresql://h/d?a=b&connect_timeout=30"
    assert timed("postgresql://h/d?connect_timeout=5") == "postgresql://h/d?connect_timeout=5"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert timed("postgresql://h/d") == "postgresql://h/d"


def test_a_time_limit_of_the_server_is_named(server):
    dataset = table_dataset(
        f"{server}?options=-c%20statement_timeout%3D100",
        query="SELECT *, CASE WHEN pg_sleep(2) IS NULL THEN 1 END AS nap FROM clicks",
        order=["nap"],
    )
    with pytest.raises(SourceError, match="due to statement timeout"):
        fetch_tables(dataset)


def test_a_column_whose_name_has_quotes(server):
    query = """SELECT 1 AS "a ""b"" c", 2 AS "Select" """
    with open_postgresql(server, "shown", query) as table:
        (batch,) = table.read(Reading(['a "b" c', "Select"], "Select"))
    assert batch.to_pylist() == [{'a "b" c': 1, "Select": 2}]
