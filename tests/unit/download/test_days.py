"""Rows in order of time, as a file for each day; the statement that orders them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayahead.core.fingerprints import sha256_of
from dayahead.download.days import days_of, write_days
from dayahead.download.statements import Reading, path, select

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTES = st.lists(st.one_of(st.none(), st.integers(-3000, 3000)), min_size=1, max_size=30)


def a_table(minutes):
    known = sorted(minute for minute in minutes if minute is not None)
    times = [START + timedelta(minutes=minute) for minute in known]
    times += [None] * (len(minutes) - len(known))
    columns = {"time": pa.array(times, pa.timestamp("us", "UTC")), "n": range(len(times))}
    return pa.table(columns)


def cut(table, lengths):
    start = 0
    for length in lengths:
        yield table.slice(start, length)
        start += length
    yield table.slice(start)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(MINUTES, st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(0, 9), max_size=5))
def test_each_row_is_in_the_file_of_its_day(tmp_path_factory, minutes, lengths, others):
    table = a_table(minutes)
    days = days_of(table.schema, "time", "text")
    folder, other = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    write_days(folder, cut(table, lengths), days)
    write_days(other, cut(table, others), days)
    found = [
        (file.stem, row)
        for file in sorted(folder.iterdir())
        for row in pq.read_table(file).to_pylist()
    ]
    assert [row for _, row in found] == table.to_pylist()
    for day, row in found:
        assert day == (row["time"].date().isoformat() if row["time"] else "undated")
    assert {file.name: sha256_of(file) for file in folder.iterdir()} == {
        file.name: sha256_of(file) for file in other.iterdir()
    }


@pytest.mark.parametrize(
    ("values", "unit", "names"),
    [
        (pa.array([-1, 0, 86_400], pa.int64()), "s", ["1969-12-31", "1970-01-01", "1970-01-02"]),
        (pa.array([86_399_999, 86_400_000], pa.int64()), "ms", ["1970-01-01", "1970-01-02"]),
        (pa.array([0, 1], pa.date32()), "text", ["1970-01-01", "1970-01-02"]),
        (pa.array([0, None], pa.timestamp("ns")), "text", ["1970-01-01", "undated"]),
        (pa.array([1, 40_000], pa.int64()), "excel", ["log"]),
        (pa.array(["1970-01-01", "1970-01-02"]), "text", ["log"]),
        (pa.array([[0], [1]], pa.list_(pa.int64())), "s", ["log"]),
        (pa.array([], pa.int64()), "s", []),
    ],
)
def test_days_of_every_kind_of_time(tmp_path, values, unit, names):
    table = pa.table({"time": values})
    write_days(tmp_path, iter([table]), days_of(table.schema, "time", unit))
    assert sorted(file.stem for file in tmp_path.iterdir()) == names


def test_rows_are_ordered_by_time_then_as_told_then_by_all_else():
    schema = pa.schema(
        [("t", pa.int64()), ("s", pa.string()), ("j", pa.string()), ("o", pa.int8())]
    )
    reading = Reading(["s", "t", "j"], "t", ["o"])
    assert select("clicks", schema, reading, ["j"], ' COLLATE "C"') == (
        'SELECT q."s" AS "s", q."t" AS "t", CAST(q."j" AS text) AS "j" FROM clicks AS q '
        'ORDER BY q."t" NULLS LAST, q."o" NULLS LAST, q."s" COLLATE "C" NULLS LAST, '
        'CAST(q."j" AS text) COLLATE "C" NULLS LAST'
    )


def test_paths_reach_into_records_as_far_as_there_are_some():
    record = pa.struct([("b", pa.struct([("c", pa.int64())])), ("x.y", pa.int64())])
    schema = pa.schema([("a", record), ("l", pa.list_(record)), ("a.z", pa.int64()), ('"', record)])
    for column, expected in (
        ("a.b.c", '"a"."b"."c"'), ("a.x.y", '"a"."x.y"'), ("a.z", '"a.z"'), ("l.b", '"l"'),
        ('".b', '"""" ."b"'.replace(" ", "")),
    ):  # fmt: skip
        assert path(column, schema) == expected
