"""CSV of careless writers: rows, reasons and lines, at any block size."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.download import batches
from support.careless_logs import batches_of, left_out, rows_of

HEADER = "session,item,time"
ROWS = [(f"s{n}", str(n), "2024-03-04") for n in range(40)]
LINES = [",".join(row) for row in ROWS]


def csv(*lines: str) -> bytes:
    return "\n".join([HEADER, *lines, ""]).encode()


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_odd_rows_are_left_out_with_exact_numbers(tmp_path, monkeypatch, block):
    monkeypatch.setattr(batches, "BLOCK", block)
    lines = [*LINES]
    for at, odd in {0: "a,b", 7: "a,b,c,d", 8: "   ", 20: HEADER, 39: "x", 40: "(38 rows)"}.items():
        lines.insert(at, odd)
    content = csv(*lines)
    found = batches_of(tmp_path / "a.csv", content, is_strict=False)
    assert rows_of(found) == [ROWS[n] for n in range(40)]
    assert left_out(found) == {
        "unreadable": [0, 7, 39, 40], "blank line": [8], "repeated header": [20]
    }  # fmt: skip
    locations = [batch.location(n) for batch in found for n in range(batch.table.num_rows)]
    numbers = [n for n in range(46) if n not in (0, 7, 8, 20, 39, 40)]
    assert locations == [f"a.csv, line {n + 2}" for n in numbers]
    with pytest.raises(SourceError, match=r"line 2: .*Expected 3 columns, got 2: a,b\. See source"):
        batches_of(tmp_path / "a.csv", content)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_before_the_rows_are_counted(tmp_path, end):
    content = end.join(["sep=,", "", HEADER, *LINES[:1]]).encode()
    (found,) = batches_of(tmp_path / "a.csv", content)
    assert found.location(0) == "a.csv, line 4"


def test_rows_that_are_no_rows_are_all_counted(tmp_path):
    found = batches_of(tmp_path / "a.csv", csv("a", "b,c"), is_strict=False)
    assert (rows_of(found), left_out(found)) == ([], {"unreadable": [0, 1]})
    assert sum(batch.n_rows for batch in found) == 2
    assert found[0].errors[1].startswith("a.csv, line 3: not a row")


def test_a_ragged_row_that_is_not_utf8_is_counted(tmp_path):
    content = csv(LINES[0]) + b"K\xe4se,1\n" + LINES[1].encode()
    found = batches_of(tmp_path / "a.csv", content, is_strict=False)
    assert (rows_of(found), left_out(found)) == (ROWS[:2], {"unreadable": [1]})
    assert "K\\xe4se,1" in found[0].errors[0]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + csv(*LINES[:20]) + b"\xef\xbb\xbf" + csv(*LINES[20:]),
        csv(*LINES[:20]) + b"\xef\xbb\xbf" + "\n".join(LINES[20:]).encode(),
        "\r".join([HEADER, *LINES]).encode(),
        (f"{HEADER}\n" + "".join(line + ["\n", "\r\n"][n % 3 > 1] for n, line in enumerate(LINES)))
        .encode(),
        ("\n \n" + HEADER + "\n" + "\n\n".join(LINES)).encode(),
        "\n".join([HEADER, *(f"{line}," for line in LINES)]).encode(),
        "\n".join([f"{HEADER},", *(f"{line}," for line in LINES)]).encode(),
        "\n".join([f"{HEADER},", *LINES]).encode(),
        "\r\n".join(["sep=,", HEADER, *LINES]).encode(),
        "\n".join([HEADER, *LINES]).replace(",", " , ").encode(),
        "\n".join(f'"{line}"'.replace(",", '", "') for line in [HEADER, *LINES]).encode(),
        "\n".join([f'"a\nname",{HEADER}', *(f"x,{line}" for line in LINES)]).encode(),
        "\n".join([HEADER, *LINES]).encode("utf-16"),
        "\n".join([HEADER, *LINES]).encode("utf-32"),
    ],
)  # fmt: skip
def test_careless_but_unambiguous(tmp_path, content):
    if b" , " in content:  # no blank can belong to the last column's values
        content = content.replace(b"session ", b"session").replace(b" item", b"item")
    found = batches_of(tmp_path / "a.csv", content)
    rows = [tuple(map(str.strip, row)) for row in rows_of(found)]
    assert rows == ROWS
    assert set(left_out(found)) <= {"repeated header"}


def test_blanks_go_only_where_the_header_has_them(tmp_path):
    content = b"session, item, time\n a , 1, 2024\n"
    found = batches_of(tmp_path / "a.csv", content)
    assert rows_of(found) == [(" a ", "1", "2024")]


@pytest.mark.parametrize("delimiter", ["::", "||", "\u00a6", "~|~", "\t|"])
def test_delimiters_of_several_bytes(tmp_path, delimiter):
    rows = [HEADER.split(","), ["a", "1", "x"], ["b:c|d~", "2", "y"], [f"p{delimiter}q", "3", "z"]]
    lines = (delimiter.join(f'"{cell}"' if "p" in cell else cell for cell in row) for row in rows)
    content = "\n".join(lines).encode()
    found = batches_of(tmp_path / "a.csv", content, delimiter=delimiter)
    assert rows_of(found) == [tuple(row) for row in rows[1:]]
    with pytest.raises(SourceError, match=r"U\+001F, which stands for the delimiter"):
        batches_of(tmp_path / "a.csv", content + b"\n\x1f", delimiter=delimiter)
    short = f"{content.decode()}\na{delimiter}1".encode()
    with pytest.raises(SourceError, match=re.escape(f"got 2: a{delimiter}1. See")):
        batches_of(tmp_path / "a.csv", short, delimiter=delimiter)


def test_an_escape_and_its_null(tmp_path):
    lines = [r'"say \"hi\", you",\N,1', r'"C:\\",2,\N', r"a\,b,3,\\N", r"\N,4,5", r'"x\\N",5,6']
    content = csv(*lines)
    found = batches_of(tmp_path / "a.csv", content, escape="\\", nulls=("\\N",))
    assert rows_of(found) == [
        ('say "hi", you', None, "1"), ("C:\\", "2", None), ("a,b", "3", None), (None, "4", "5"),
        ("x\\N", "5", "6"),
    ]  # fmt: skip
    assert rows_of(batches_of(tmp_path / "b.csv", csv("a,\\N,1"), nulls=("\\N",))) == [
        ("a", None, "1")
    ]


@pytest.mark.parametrize(
    ("content", "source", "message"),
    [
        (csv(*LINES).replace(b",", b";"), {}, r"line 1: expected .* found ';'\. Set source\.delim"),
        (csv(*LINES).replace(b",", b"||"), {}, r"Set source\.delimiter to '\|\|'"),
        (b"sep=;\n" + csv(*LINES), {}, r"line 1: says that ';' is the delimiter"),
        (b"Report\nof,May\n" + csv(*LINES), {}, r"line 3: the column names are here.*header"),
        (b"PAR1\0\0\0", {}, "looks like parquet. Set source.format to parquet"),
        (b'{"session": 1}\n', {}, "looks like jsonl. Set source.format to jsonl"),
        (csv(*LINES).decode().encode("utf-16-le"), {}, r"looks like utf-16-le.*source\.encoding"),
        (csv(*LINES).decode().encode("utf-32-be"), {}, r"looks like utf-32-be.*source\.encoding"),
    ],
)
def test_what_cannot_be_read_names_the_cure(tmp_path, content, source, message):
    with pytest.raises(SourceError, match=message):
        batches_of(tmp_path / "a.csv", content, **source)


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_row_left_out_that_holds_others_is_counted_as_one_of_several_lines(
    tmp_path, monkeypatch, block
):
    """A stray quote makes one row of all that follow, up to the next quote or the end."""
    monkeypatch.setattr(batches, "BLOCK", block)
    content = csv("a,1", *LINES[:9], '"' + LINES[9], "b,2")
    found = batches_of(tmp_path / "a.csv", content, is_strict=False)
    assert left_out(found) == {"unreadable": [0, 10]}
    first, spanning = 0, []
    for batch in found:
        spanning += (batch.multiline + first).tolist()
        first += batch.n_rows
    assert spanning == [10]


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_row_longer_than_a_block_is_named(tmp_path, monkeypatch, is_strict):
    monkeypatch.setattr(batches, "BLOCK", 64)
    content = csv(*LINES[:9], '"' + LINES[9], *LINES[10:])
    with pytest.raises(SourceError, match=r"line 11: .* more than 64 bytes.*source\.quote to null"):
        batches_of(tmp_path / "a.csv", content, is_strict=is_strict)


def test_an_empty_file_has_no_rows(tmp_path):
    assert batches_of(tmp_path / "a", b"\n \r\n\t\n") == []
    for format_ in ("csv", "jsonl", "parquet"):
        assert batches_of(tmp_path / "a", b"", format=format_) == []


def test_rows_left_out_by_where_keep_their_numbers(tmp_path):
    content = csv("a,1,x", "b,2,y", "a,3,y", "b,4")
    found = batches_of(
        tmp_path / "a.csv", content, is_strict=False, where={"session": ("a",), "time": ("y",)}
    )
    assert rows_of(found) == [("a", "3", "y")]
    assert left_out(found) == {
        "unreadable": [3], "source.where session": [1], "source.where time": [0]
    }  # fmt: skip
    assert found[0].location(0) == "a.csv, line 4"
    assert found[0].filtered == {"session": {"b": 1}, "time": {"x": 1}}


CELLS = st.text(st.sampled_from('ab,"\\ \u00e9\u00a6:\n'), max_size=5)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252"]),
    st.sampled_from([",", "::", "\u00a6"]),
    st.sampled_from([5, 1 << 20]),
)
@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_quoted_values_in_any_encoding(tmp_path, rows, encoding, delimiter, block):
    lines = (
        delimiter.join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row)
        for row in [HEADER.split(","), *rows]
    )
    text = "\n".join(lines)
    found = batches_of(
        tmp_path / "a.csv", text.encode(encoding), delimiter=delimiter, encoding=encoding, nulls=()
    )
    assert rows_of(found) == rows
