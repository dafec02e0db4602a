"""Rows written by key are read by key, and found again by the hash of their key."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dayahead.preprocess.shuffle import (
    bucket_of,
    hash_values,
    look_up,
    read_shuffled,
    write_lookup,
    write_shuffled,
)

IDS = st.lists(st.one_of(st.none(), st.sampled_from("abcdefg")), max_size=12)


def table_of(ids):
    return pa.table(
        {"id": pa.array(ids, pa.string()), "row": pa.array(range(len(ids)), pa.int64())}
    )


@given(files=st.lists(st.lists(IDS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_each_row_is_read_once_and_with_all_of_its_key(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("scratch")
    paths = [folder / f"{n}.events" for n in range(len(files))]
    for path, tables in zip(paths, map(lambda file: map(table_of, file), files), strict=True):
        write_shuffled(((table, bucket_of(table["id"], 3)) for table in tables), path)
    read = [read_shuffled(paths, bucket) for bucket in range(3)]
    wanted = pa.concat_tables([table_of(ids) for file in files for ids in file])
    rows = sorted(map(repr, pa.concat_tables(read).to_pylist()))
    assert rows == sorted(map(repr, wanted.to_pylist()))
    found = [set(table["id"].to_pylist()) for table in read]
    assert sum(map(len, found)) == len(set().union(*found))


def test_columns_that_a_file_lacks_are_null(tmp_path):
    tables = [pa.table({"a": [1]}), pa.table({"a": [2], "b": [3]})]
    paths = [tmp_path / "0.events", tmp_path / "1.events"]
    for table, path in zip(tables, paths, strict=True):
        write_shuffled([(table, np.zeros(1, dtype=np.int64))], path)
    assert read_shuffled(paths, 0).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


@given(known=st.lists(IDS, max_size=3), wanted=st.lists(st.sampled_from("abcxyz"), unique=True))
def test_a_lookup_finds_the_rows_of_its_keys_in_every_file(tmp_path_factory, known, wanted):
    folder = tmp_path_factory.mktemp("lookups")
    paths = [folder / f"{n}.arrow" for n in range(len(known))]
    for path, ids in zip(paths, known, strict=True):
        table = table_of(ids)
        write_lookup(path, hash_values(table["id"]), table)
    found = [
        (row["id"], wanted[position])
        for rows, positions in look_up(paths, hash_values(pa.array(wanted, pa.string())))
        for row, position in zip(rows.to_pylist(), positions, strict=True)
    ]
    assert all(one == other for one, other in found)
    expected = [each for ids in known for each in ids if each in wanted]
    assert sorted(each for each, _ in found) == sorted(expected)
