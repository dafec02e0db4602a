"""Readers: the same rows from every format and batch size, and the line of errors."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download import batches
from dayahead.download.archives import raw_files
from dayahead.download.batches import RawBatch, find_invalid, kept_rows
from dayahead.download.readers import read_batches

COLUMNS = {"session": pa.string(), "item": pa.int64(), "price": pa.float64()}


def read(path: Path, content: bytes, **source: Any) -> list[dict[str, Any]]:
    path.write_bytes(content)
    config = SourceConfig(urls=("unused",), **source)
    rows = []
    for raw in raw_files(path, path.name, "*", path.parent):
        for batch in read_batches(raw, config, COLUMNS):
            assert set(batch.table.schema.names) == set(COLUMNS)
            rows += batch.table.to_pylist()
    return rows


def csv(*rows: tuple[bytes | None, ...]) -> list[dict[str, str | None]]:
    text = [[value and value.decode() for value in row] for row in rows]
    return [dict(zip(COLUMNS, row, strict=True)) for row in text]


def test_csv_is_read_as_text(tmp_path):
    content = b'session,junk,item,price\r\na,x,1,\r\n"b,\n""c""",x,2,3.5\r\n,x,NULL,4\r\n'
    assert read(tmp_path / "a.csv", content, nulls=("", "NULL")) == csv(
        (b"a", b"1", None), (b'b,\n"c"', b"2", b"3.5"), (None, None, b"4")
    )


def test_tsv_without_header_and_csv_with_byte_order_mark(tmp_path):
    header = ("session", "item", "price")
    rows = csv((b"a", b"1", b"2"))
    assert read(tmp_path / "a.tsv", b"a\t1\t2\n", delimiter="\t", header=header) == rows
    assert read(tmp_path / "b.csv", b"\xef\xbb\xbfsession,item,price\na,1,2\n") == rows


@pytest.mark.parametrize("block", [1 << 10, 1 << 20])
def test_rows_do_not_depend_on_the_batch_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(batches, "BLOCK", block)
    rows = [(str(i).encode(), str(i * 7).encode(), b"1.5") for i in range(2000)]
    text = b"session,item,price\n" + b"".join(b",".join(row) + b"\n" for row in rows)
    assert read(tmp_path / "a.csv.gz", gzip.compress(text)) == csv(*rows)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_of_any_system(tmp_path, end):
    lines = [b"session,item,price", b"a,1,2", b"b,2,3", b""]
    rows = csv((b"a", b"1", b"2"), (b"b", b"2", b"3"))
    assert read(tmp_path / "a.csv", end.join(lines)) == rows


def test_a_header_without_rows(tmp_path):
    assert read(tmp_path / "a.csv", b"session,item,price\n") == []


def test_json_types_are_not_guessed(tmp_path):
    lines = [
        {"session": "2019-10-01", "item": 2**62 + 1, "price": 1, "junk": {"deep": [1]}},
        {"item": 3, "session": "NULL", "price": 2.5},
        {"session": None, "item": None},
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    assert read(tmp_path / "a.jsonl", content, format="jsonl", nulls=("NULL",)) == [
        {"session": "2019-10-01", "item": 2**62 + 1, "price": 1.0},
        {"session": None, "item": 3, "price": 2.5},
        {"session": None, "item": None, "price": None},
    ]


@pytest.mark.parametrize("wrapped", ["a.parquet", "a.parquet.gz"])
def test_parquet(tmp_path, wrapped):
    rows = [{"session": "a", "item": 1, "price": 1.5}, {"session": None, "item": 2, "price": None}]
    pq.write_table(pa.Table.from_pylist([{**row, "junk": 0} for row in rows]), tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    packed = gzip.compress(content) if wrapped.endswith(".gz") else content
    assert read(tmp_path / wrapped, packed, format="parquet") == rows


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"PAR1PAR1", {"format": "parquet"}, r"a\.txt: not readable as parquet"),
        (b"session,item\na,1\n", {}, r"a\.txt: no column price; it has session, item\."),
        (b"<html>\n", {}, "a page of HTML"),
        (b"x" * 200_000 + b",item\n", {}, r"a\.txt, line 1: expected column names in UTF-8: field"),
        (b"\xff,\n", {}, r"a\.txt, line 1: expected column names in UTF-8.*source\.encoding"),
        (b"session,item,price\na,1,1\n\nb,2\n", {}, r"a\.txt, line 3: .*Expected 3 columns, got 2"),
        (b"a,1,1\nb,2\n", {"header": ("session", "item", "price")}, r"line 2: .*got 2: b,2"),
        (b'{"session": "a"\n', {"format": "jsonl"}, r"a\.txt, line 1: not a JSON object"),
        (b'\n{"session"\n', {"format": "jsonl"}, r"a\.txt, line 2: not a JSON object"),
        (b"[1]\n", {"format": "jsonl"}, r"object 1: not JSON: expected an object, found '\[1\]"),
        (b'"text"\n', {"format": "jsonl"}, r"line 1: expected a JSON object on each line"),
        (b'{"session": "a"}\n', {"format": "jsonl"}, "no column item, price; it has session"),
        (
            b"session,item,price\n",
            {"format": "parquet"},
            "looks like csv. Set source.format to csv",
        ),
        (b"session,item,price,item\n", {}, "more than one column item; it has session"),
        (b"null\n", {"format": "jsonl"}, "line 1: expected a JSON object on each line"),
    ],
)
def test_errors_name_problem_and_line(tmp_path, content, options, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path / "a.txt", content, **options)


def test_errors_name_the_invalid_line_of_json(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 5000)
    good = b'{"session": "a", "item": 1, "price": 2}\n'
    for bad in (
        b'{"session": "a", "item"\n', b"\xff\n", b"null\n", good[:-1] + good, b"[]\n",
    ):  # fmt: skip
        content = good * 1500 + bad + good
        with pytest.raises(
            SourceError, match=r"a\.jsonl, line 1,501: (expected|not) a JSON object"
        ):
            read(tmp_path / "a.jsonl", content, format="jsonl")


@pytest.mark.parametrize("block", [20, 1 << 20])
def test_blank_lines_of_json_are_skipped_but_counted(tmp_path, monkeypatch, block):
    good = b'{"session": "a", "item": 1, "price": 2}\n'
    content = good + b"\n" * 40 + b" \r\n" + good
    rows = [{"session": "a", "item": 1, "price": 2.0}] * 2
    monkeypatch.setattr(batches, "BLOCK", block)
    assert read(tmp_path / "a.jsonl", content, format="jsonl") == rows
    assert read(tmp_path / "b.jsonl", b"\n" + content, format="jsonl") == rows
    with pytest.raises(SourceError, match=r"a\.jsonl, line 44: "):
        read(tmp_path / "a.jsonl", content + b"{\n" + good, format="jsonl")


def test_a_truncated_gzip_is_an_error(tmp_path):
    text = b"session,item,price\n" + b"".join(b"%d,%d,1\n" % (i, i * i) for i in range(20_000))
    with pytest.raises(SourceError, match=r"a\.csv\.gz: damaged.*Truncated"):
        read(tmp_path / "a.csv.gz", gzip.compress(text)[:-1000])
    with pytest.raises(SourceError, match=r"b\.csv\.gz: is a page of HTML"):
        read(tmp_path / "b.csv.gz", b"<html>not found</html>")


@given(st.lists(st.sampled_from("123x")))
def test_find_invalid(values):
    found = find_invalid(pa.array(values, pa.string()), lambda some: some.cast(pa.int64()))
    assert list(found) == [index for index, value in enumerate(values) if value == "x"]


def test_json_with_a_byte_order_mark(tmp_path):
    content = b'\xef\xbb\xbf{"session": "a", "item": 1, "price": 2}\n'
    rows = [{"session": "a", "item": 1, "price": 2.0}]
    assert read(tmp_path / "a.jsonl", content, format="jsonl") == rows


NOT_UTF8 = pa.StringArray.from_buffers(
    2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xffa")
)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_parquet_text_that_is_not_utf8_is_read_with_escapes(tmp_path, kind):
    sessions = NOT_UTF8.cast(kind)
    pq.write_table(pa.table({"session": sessions, "item": [1, 2], "price": [1, 2]}), tmp_path / "t")
    rows = read(tmp_path / "b", (tmp_path / "t").read_bytes(), format="parquet")
    assert [row["session"] for row in rows] == ["\\xff", "a"]


def test_half_floats_of_parquet_are_read(tmp_path):
    half = pa.array(np.array([1, 2], np.float16))
    pq.write_table(pa.table({"session": half, "item": half, "price": half}), tmp_path / "t")
    rows = read(tmp_path / "b", (tmp_path / "t").read_bytes(), format="parquet")
    assert rows == [{"session": n, "item": n, "price": n} for n in (1.0, 2.0)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_flipped_bits_in_parquet_are_errors_of_ours(tmp_path, seed, compression):
    n = 300
    columns = {"session": [f"s{i // 3}" for i in range(n)], "item": [*range(n)], "price": [0.5] * n}
    pq.write_table(pa.table(columns), tmp_path / "t", compression=compression)
    content = (tmp_path / "t").read_bytes()
    rng = random.Random(seed)
    n_errors = 0
    for _ in range(1000 if seed else 100):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 5])):
            damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        try:
            read(tmp_path / "b", bytes(damaged), format="parquet")
        except SourceError:
            n_errors += 1
    assert n_errors > 10


def test_all_parquet_text_types_are_read_the_same(tmp_path):
    texts = ["a", "NULL", "7"]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"session": pa.array(texts, kind), "item": [1] * 3, "price": [0.5] * 3})
        pq.write_table(table, tmp_path / "t")
        rows = read(
            tmp_path / "b", (tmp_path / "t").read_bytes(), format="parquet", nulls=("NULL",)
        )
        assert [row["session"] for row in rows] == ["a", None, "7"]


def test_null_and_empty_values_that_are_not_wanted_add_up():
    batch = RawBatch(pa.table({"kind": ["", None, None, "view", "cart"]}), "a", "row", 1)
    found = kept_rows(batch, {"kind": ["view"]}).filtered
    assert found == {"kind": {"nothing": 3, "cart": 1}}


def test_a_first_line_that_is_cut_within_a_character_is_no_header(tmp_path):
    with pytest.raises(SourceError, match="no column session"):
        read(tmp_path / "a.csv", ("x" + "é," * 50 + "éé," * (1 << 18)).encode())
    with pytest.raises(SourceError, match="line 1: expected column names"):
        read(tmp_path / "a.csv", ("x" + "é" * (1 << 20)).encode())
