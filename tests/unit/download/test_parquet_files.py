"""Parquet with nested columns: paths, lists, and values that are records."""

from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError
from support.careless_logs import batches_of, left_out, rows_of

TABLE = pa.table(
    {
        "user": [{"id": "a", "geo": {"city": "x"}}, None, {"id": "c", "geo": None}],
        "user.name": ["p", "q", "r"],
        "items": [[{"id": 1, "kind": "v"}, {"id": 2, "kind": "c"}], [], [{"id": 3, "kind": None}]],
        "tags": [["s", "t"], None, ["u"]],
    }
)
COLUMNS = {"user.id": pa.string(), "user.geo.city": pa.string(), "user.name": pa.string()}


def read(tmp_path, columns, **source):
    pq.write_table(TABLE, tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    return batches_of(tmp_path / "a", content, columns, format="parquet", **source)


def test_paths_and_names_with_dots(tmp_path):
    assert rows_of(read(tmp_path, COLUMNS)) == [
        ("a", "x", "p"), (None, None, "q"), ("c", None, "r")
    ]  # fmt: skip


def test_lists_become_rows(tmp_path):
    columns = {"user.id": pa.string(), "items.id": pa.int64()}
    found = read(tmp_path, columns, explode="items")
    assert rows_of(found) == [("a", 1), ("a", 2), ("c", 3)]
    assert rows_of(read(tmp_path, {"tags": pa.string()}, explode="tags")) == [
        ("s",), ("t",), ("u",)
    ]  # fmt: skip
    columns["items.kind"] = pa.string()
    found = read(tmp_path, columns, explode="items", where={"items.kind": ("v",)})
    assert left_out(found) == {"source.where items.kind": [1, 2]}


@pytest.mark.parametrize(
    ("columns", "explode", "message"),
    [
        ({"user": pa.string()}, None, r"column user holds records\. Name a field of it"),
        ({"tags": pa.string()}, None, "column tags holds lists"),
        ({"items.id": pa.int64()}, None, "no column items.id; it has user, user.name, items"),
        ({"user.id": pa.string()}, "user", "column user is struct.*expected a list"),
        ({"user.id": pa.string()}, "events", "no column events; it has"),
    ],
)
def test_what_is_no_column_is_named(tmp_path, columns, explode, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path, columns, explode=explode)


def test_uuids_are_written_as_usual(tmp_path):
    ids = [UUID(int=1), None, UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")]
    values = pa.array([each and each.bytes for each in ids], pa.uuid())
    pq.write_table(pa.table({"id": values}), tmp_path / "t")
    found = batches_of(
        tmp_path / "a", (tmp_path / "t").read_bytes(), {"id": pa.string()}, format="parquet"
    )
    assert rows_of(found) == [(each and str(each),) for each in ids]


def test_other_formats_are_named(tmp_path):
    for content, found in ((b"a,b\n1,2\n", "csv"), (b'{"a": 1}\n', "jsonl")):
        with pytest.raises(SourceError, match=f"looks like {found}. Set source.format to {found}"):
            batches_of(tmp_path / "a", content, format="parquet")
