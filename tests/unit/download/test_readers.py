"""Readers: what all formats have in common, and the line of errors."""

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.download import batches
from dayahead.download.batches import RawBatch, find_invalid, kept_rows
from support.careless_logs import batches_of, rows_of

COLUMNS = {"session": pa.string(), "item": pa.int64(), "price": pa.float64()}


def read(path, content, **source):
    return rows_of(batches_of(path, content, COLUMNS, **source))


def test_csv_is_read_as_text(tmp_path):
    content = b'session,junk,item,price\r\na,x,1,\r\n"b,\n""c""",x,2,3.5\r\n,x,NULL,4\r\n'
    assert read(tmp_path / "a.csv", content, nulls=("", "NULL")) == [
        ("a", "1", None), ('b,\n"c"', "2", "3.5"), (None, None, "4")
    ]  # fmt: skip


def test_tsv_without_header(tmp_path):
    header = ("session", "item", "price")
    found = read(tmp_path / "a.tsv", b"a\t1\t2\n", delimiter="\t", header=header)
    assert found == [("a", "1", "2")]


def test_json_types_are_not_guessed(tmp_path):
    lines = [
        {"session": "2019-10-01", "item": 2**62 + 1, "price": 1, "junk": {"deep": [1]}},
        {"item": 3, "session": "NULL", "price": 2.5},
        {"session": None, "item": None},
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    assert read(tmp_path / "a.jsonl", content, format="jsonl", nulls=("NULL",)) == [
        ("2019-10-01", 2**62 + 1, 1.0), (None, 3, 2.5), (None, None, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"PAR1PAR1", {"format": "parquet"}, r"a\.txt: not readable as parquet"),
        (b"session,item\na,1\n", {}, r"a\.txt: no column price; it has session, item\."),
        (gzip.compress(b"<html>\n"), {}, r"a\.txt: is a page of HTML"),
        (b"x" * 200_000 + b",item\n", {}, r"a\.txt, line 1: expected column names in UTF-8: field"),
        (b"\xff,\n", {}, r"a\.txt, line 1: expected column names in UTF-8.*source\.encoding"),
        (b"session,item,price\na,1,1\n\nb,2\n", {}, r"a\.txt, line 3: .*Expected 3 columns, got 2"),
        (b"a,1,1\nb,2\n", {"header": ("session", "item", "price")}, r"line 2: .*got 2: b,2"),
        (b'\n{"session"\n', {"format": "jsonl"}, r"a\.txt, line 2: not a JSON object"),
        (b"null\n", {"format": "jsonl"}, "line 1: expected a JSON object on each line"),
        (b"session,item,price,item\n", {}, "more than one column item; it has session"),
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


@given(st.lists(st.sampled_from("123x")))
def test_find_invalid(values):
    found = find_invalid(pa.array(values, pa.string()), lambda some: some.cast(pa.int64()))
    assert list(found) == [index for index, value in enumerate(values) if value == "x"]


def test_null_and_empty_values_that_are_not_wanted_add_up():
    batch = RawBatch(pa.table({"kind": ["", None, None, "view", "cart"]}), "a", "row", 1)
    found = kept_rows(batch, {"kind": ["view"]}).filtered
    assert found == {"kind": {"nothing": 3, "cart": 1}}


def test_a_first_line_that_is_cut_within_a_character_is_no_header(tmp_path):
    with pytest.raises(SourceError, match="no column session"):
        read(tmp_path / "a.csv", ("x" + "é," * 50 + "éé," * (1 << 18)).encode())
    with pytest.raises(SourceError, match="line 1: expected column names"):
        read(tmp_path / "a.csv", ("x" + "é" * (1 << 20)).encode())
