"""Parquet: types of text and numbers, paths, lists, and values that are records."""

import gzip
import random
from uuid import UUID

import numpy as np
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


def written(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def read(tmp_path, columns, table=TABLE, **source):
    return batches_of(tmp_path / "a", written(table), columns, format="parquet", **source)


def sessions_in(tmp_path, values, **source):
    """Read a column of text."""
    found = read(tmp_path, {"session": pa.string()}, pa.table({"session": values}), **source)
    return [session for (session,) in rows_of(found)]


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


def test_a_compressed_file_is_read_from_its_end(tmp_path):
    content = gzip.compress(written(pa.table({"session": ["a", None], "junk": [0, 0]})))
    found = batches_of(tmp_path / "a", content, {"session": pa.string()}, format="parquet")
    assert rows_of(found) == [("a",), (None,)]


def test_uuids_are_written_as_usual(tmp_path):
    ids = [UUID(int=1), None, UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")]
    values = pa.array([each and each.bytes for each in ids], pa.uuid())
    assert sessions_in(tmp_path, values) == [each and str(each) for each in ids]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_that_is_not_utf8_is_read_with_escapes(tmp_path, kind):
    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    values = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"\xffa")).cast(kind)
    assert sessions_in(tmp_path, values) == ["\\xff", "a"]


def test_half_floats_are_read(tmp_path):
    assert sessions_in(tmp_path, pa.array(np.array([1, 2], np.float16))) == [1.0, 2.0]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_all_types_of_text_are_read_the_same(tmp_path, kind):
    values = pa.array(["a", "NULL", "7"], kind)
    assert sessions_in(tmp_path, values, nulls=("NULL",)) == ["a", None, "7"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_flipped_bits_are_errors_of_ours(tmp_path, seed, compression):
    n = 300
    columns = {"session": [f"s{i // 3}" for i in range(n)], "item": [*range(n)], "time": [0.5] * n}
    content = written(pa.table(columns), compression=compression)
    rng = random.Random(seed)
    n_errors = 0
    for _ in range(1000 if seed else 100):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 5])):
            damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        try:
            batches_of(tmp_path / "b", bytes(damaged), format="parquet")
        except SourceError:
            n_errors += 1
    assert n_errors > 10


def test_other_formats_are_named(tmp_path):
    for content, found in ((b"a,b\n1,2\n", "csv"), (b'{"a": 1}\n', "jsonl")):
        with pytest.raises(SourceError, match=f"looks like {found}. Set source.format to {found}"):
            batches_of(tmp_path / "a", content, format="parquet")
