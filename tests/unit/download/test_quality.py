"""Data quality: counts, locations, limits and the report."""

import json
from itertools import pairwise
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.core.files import read_json
from dayahead.download import batches, convert
from dayahead.download.stage import download
from support.archives import zip_of
from support.raw_logs import PRICE, csv, quality_of
from support.sources import a_dataset


def result(found: int, of: int, *examples: str, **others: Any) -> dict:
    share = {"share": found / of}
    return {"found": found, "of": of, "limit": None, "examples": list(examples), **share, **others}


def test_counts_and_locations_of_every_check(tmp_path):
    first = csv(
        "a,1,2019-10-01 00:00:09,1",
        ",1,2019-10-01 00:00:08,-1",  # no event: neither backwards nor negative
        "a,1,2019-10-01 00:00:09,1",  # a duplicate
        "a,2,2019-10-01 00:00:07,-2",  # backwards, negative
        "a,3,2019-10-01 00:00:07,",
        "a,1,2019-10-01 00:00:09,1",  # a duplicate again
        "a,4,2019-10-01 00:00:06,-0.5",  # backwards, negative
        header="session,item,time,price",
    )
    second = csv("b,1,2019-10-05 00:00:00,nan", "a,3,2019-10-03 00:00:07,0",
                 header="session,item,time,price")  # fmt: skip
    found = quality_of(
        tmp_path, first, second, features=PRICE, quality={"nulls": {"session_id": 1}}
    )
    assert found == {
        "unreadable": result(0, 9, limit=0.0, worst=""),
        "multiline": result(0, 9, limit=0.0, worst=""),
        "nulls.session_id": result(1, 9, "0.csv, line 3", limit=1.0, worst="14.29% 0.csv"),
        "nulls.item_id": result(0, 9, limit=0.01, worst=""),
        "nulls.event_time": result(0, 9, limit=0.01, worst=""),
        "nulls.price": result(2, 9, "0.csv, line 6", "1.csv, line 2", worst="50.00% 1.csv"),
        "negative.price": result(2, 8, "0.csv, line 5", "0.csv, line 8", worst="33.33% 0.csv"),
        "outside": result(0, 8, limit=0.1, worst=""),
        "backwards": result(
            3, 8, "0.csv, line 5", "0.csv, line 8", "1.csv, line 3", worst="50.00% 1.csv"
        ),
        "duplicates": result(2, 8, "0.csv, line 4", "0.csv, line 7", worst="33.33% 0.csv"),
        "empty_days": result(2, 5, "1 after 2019-10-01", "1 after 2019-10-03", worst=""),
        "stray": result(0, 8, limit=0.1, worst=""),
    }


def test_locations_across_batches_and_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 200)
    monkeypatch.setattr(convert, "ROW_GROUP", 4)
    monkeypatch.setattr(convert, "MAX_EVENTS", 16)
    rows = [f"a,{number},2019-10-01 00:{number:02}:00" for number in range(60)]
    rows[40] = "a,40,2019-10-01 00:00:00"  # backwards, in a later batch
    rows[35] = rows[34]  # a duplicate, in a later part: 32..47
    rows[48] = rows[47]  # in the next part
    found = quality_of(tmp_path, csv(*rows))
    assert found["backwards"]["examples"] == ["0.csv, line 42"]
    assert (found["duplicates"]["found"], found["duplicates"]["examples"]) == (
        2,
        ["0.csv, line 37", "0.csv, line 50"],
    )


def test_locations_name_the_member_of_an_archive(tmp_path):
    one, two = csv("a,1,2019-10-02", "a,1,2019-10-01"), csv("a,1,2019-10-03", ",1,2019-10-01")
    packed = zip_of([("one.csv", one.encode()), ("two.csv", two.encode())])
    (tmp_path / "log.zip").write_bytes(packed)
    dataset = a_dataset(
        source={"urls": [str(tmp_path / "log.zip")]}, quality={"nulls": {"session_id": 1}}
    )
    download(dataset, "mine", tmp_path / "data" / "raw")
    found = {f["check"]: f for f in read_json(tmp_path / "data/raw/manifest.json")["quality"]}
    assert found["backwards"]["examples"] == ["log.zip::one.csv, line 3"]
    assert found["nulls.session_id"]["examples"] == ["log.zip::two.csv, line 3"]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from([0, 1, 86_400 * 2, 86_400 * 5, None]),
        st.sampled_from([-1.0, 0.0, 2.5, float("nan"), None]),
    ),
    min_size=1,
)


@pytest.mark.long
@given(rows=ROWS.filter(lambda rows: any(None not in row[:3] for row in rows)))
@settings(max_examples=30)
def test_counts_agree_with_plain_python(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("log")
    columns = dict(zip(["session", "item", "time", "price"], zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "0.parquet")
    dataset = a_dataset(
        source={"urls": [str(folder / "0.parquet")], "format": "parquet"},
        time={"unit": "s", "between": ["1970-01-01", "2100-01-01"]},
        features=PRICE,
        quality={"nulls": {"session_id": 1, "item_id": 1, "event_time": 1}},
    )
    download(dataset, "mine", folder / "raw")
    found = {f["check"]: f["found"] for f in read_json(folder / "raw/manifest.json")["quality"]}
    events = [
        (session, item, time, None if price is None or isnan(price) else price)
        for session, item, time, price in rows
        if None not in (session, item, time)
    ]
    times = [event[2] for event in events]
    days = {time // 86_400 for time in times}
    assert found == {
        "unreadable": 0,
        "nulls.session_id": sum(row[0] is None for row in rows),
        "nulls.item_id": sum(row[1] is None for row in rows),
        "nulls.event_time": sum(row[2] is None for row in rows),
        "nulls.price": sum(row[3] is None or isnan(row[3]) for row in rows),
        "negative.price": sum(event[3] is not None and event[3] < 0 for event in events),
        "outside": 0,
        "stray": 0,
        "backwards": sum(later < before for before, later in pairwise(times)),
        "duplicates": len(events) - len(set(events)),
        "empty_days": max(days) - min(days) + 1 - len(days),
    }


def test_the_report_is_an_aligned_table(tmp_path):
    quality_of(tmp_path, csv("a,1,2019-10-01", "a,1,2019-10-01"), quality={"duplicates": 0.5})
    lines = (tmp_path / "data/raw/quality.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    cells = {
        row[0]: row[1:] for row in ([c.strip() for c in line.split("|")[1:-1]] for line in table)
    }
    assert cells["duplicates"] == [
        "1", "2 rows", "50.00%", "50.00%", "allowed", "50.00% 0.csv", "0.csv, line 3",
    ]  # fmt: skip
    assert cells["backwards"][:5] == ["0", "2 rows", "0.00%", "", "none"]
    assert lines[0] == "# Quality of the input: mine"


LATE_FIRST = csv("a,1,2019-10-04,-1", "a,2,2019-10-01,2", "a,2,2019-10-01,2", "a,3,2019-10-01,",
                 header="session,item,time,price")  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "too_low", "enough", "message"),
    [
        ("nulls.price", 0.24, 0.25, "25.00% of 4 rows (limit 24.00%), first 0.csv, line 5"),
        ("duplicates", 0, 0.25, "25.00% of 4 rows (limit 0.00%), first 0.csv, line 4"),
        ("backwards", 0.1, 0.25, "25.00% of 4 rows (limit 10.00%), first 0.csv, line 3"),
        ("negative.price", 0.0, 0.25, "25.00% of 4 rows (limit 0.00%), first 0.csv, line 2"),
        ("empty_days", 0.49, 0.5, "50.00% of 4 days (limit 49.00%), first 2 after 2019-10-01"),
    ],
)
def test_exceeding_a_limit_is_an_error(tmp_path, limit, too_low, enough, message):
    def quality(share):
        key, _, column = limit.partition(".")
        return {key: {column: share} if column else share}

    quality_of(tmp_path, LATE_FIRST, features=PRICE, quality=quality(enough))
    before = (tmp_path / "data/raw/manifest.json").read_bytes()
    with pytest.raises(SourceError) as caught:
        quality_of(tmp_path, LATE_FIRST, features=PRICE, quality=quality(too_low))
    assert str(caught.value) == (
        f"datasets/mine.yaml: too many defects in the log: {limit}: {message}. Correct the "
        f"files, or, if that is how the log is, raise quality.{limit} there"
    )
    assert (tmp_path / "data/raw/manifest.json").read_bytes() == before


STRAY = [f"a,{number},2019-10-01,tv" for number in range(135)]
STRAY[10] = 'a,10,2019-10-01,"5 inch tv'
STRAY[45] = 'a,45,2019-10-01,"6 inch tv'
STRAY = csv(*STRAY, header="session,item,time,title")


def test_a_stray_quote_swallows_no_row_silently(tmp_path):
    with pytest.raises(SourceError) as caught:
        quality_of(tmp_path, STRAY)
    assert str(caught.value) == (
        "datasets/mine.yaml: too many defects in the log: multiline: 1.00% of 100 rows (limit "
        "0.00%), first 0.csv, line 12. Correct the files, or, if that is how the log is, raise "
        "quality.multiline there. If quotes are ordinary characters there, set source.quote to null"
    )
    found = quality_of(tmp_path, STRAY, quality={"multiline": 0.01})
    assert found["multiline"] == result(1, 100, "0.csv, line 12", limit=0.01, worst="1.00% 0.csv")
    found = quality_of(tmp_path, STRAY, source={"quote": None})
    assert found["multiline"] == result(0, 135, limit=0.0, worst="")


def test_any_character_can_quote(tmp_path):
    text = csv("'a,b',1,2019-10-01", header="'session',item,time")
    quality_of(tmp_path, text, source={"quote": "'"})
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["session_id"].to_pylist() == ["a,b"]


def test_columns_of_one_name_that_are_not_read_may_span_lines_too(tmp_path):
    text = csv('a,1,2019-10-01,"x\ny",z', 'a,1,2019-10-01,x,"y\nz"', header="session,item,time,x,x")
    found = quality_of(tmp_path, text, quality={"multiline": None})
    assert (found["multiline"]["found"], found["multiline"]["of"]) == (2, 2)


def test_all_exceeded_limits_are_reported_together(tmp_path):
    limits = {"backwards": 0, "duplicates": 0}
    with pytest.raises(
        SourceError, match=r"backwards: .*; duplicates: .*raise quality\.backwards, "
    ):
        quality_of(tmp_path, LATE_FIRST, features=PRICE, quality=limits)


def test_required_columns_have_a_default_limit(tmp_path):
    rows = ["a,1,2019-10-01"] * 198
    found = quality_of(tmp_path, csv(*rows, ",1,2019-10-01", "a,,2019-10-01"))
    assert found["nulls.session_id"]["limit"] == 0.01
    for bad in (",1,2019-10-01", "a,,2019-10-01", "a,1,"):
        with pytest.raises(
            SourceError, match=r"1\.49% of 201 rows \(limit 1\.00%\), first 0\.csv, l"
        ):
            quality_of(tmp_path, csv(*rows, bad, bad, bad))


def test_the_user_is_required_if_sessions_are_cut_by_user(tmp_path):
    by_user = {
        "columns": {"session_id": None, "user_id": "session"},
        "sessions": {"gap_minutes": 30.0, "repeats": {"rule": "keep", "scope": "user"}},
    }
    with pytest.raises(SourceError, match=r"nulls\.user_id: 50\.00% of 2 rows \(limit 1\.00%\)"):
        quality_of(tmp_path, csv("a,1,2019-10-01", ",1,2019-10-01"), **by_user)


UNREADABLE = [
    "x,2019-10-01",
    f"{2**63},2019-10-01",
    "1,yesterday",
    "1.5,2019-10-01",
]


def test_the_share_is_named_where_all_rows_are_unreadable(tmp_path):
    text = csv("a,x,2019-10-01", "a,y,2019-10-01")
    with pytest.raises(
        SourceError, match=r"100\.00% of 2 rows \(limit 1\.00%\), first 0\.csv, line"
    ):
        quality_of(tmp_path, text, quality={"unreadable": 0.01})
    with pytest.raises(SourceError, match=r"100\.00% of 2 rows \(limit 1\.00%\), first 0\.jsonl"):
        quality_of(tmp_path, "{\n{\n", ending="jsonl", source={"format": "jsonl"},
                   quality={"unreadable": 0.01})  # fmt: skip


@pytest.mark.parametrize("bad", UNREADABLE)
def test_unreadable_rows_are_dropped_up_to_the_limit(tmp_path, bad):
    rows = [f"a,{number},2019-10-01 00:00:0{number}" for number in range(4)]
    text = csv(*rows[:2], f"a,{bad}", *rows[2:])
    with pytest.raises(SourceError, match=r"0\.csv, line 4: column (item|time): expected"):
        quality_of(tmp_path, text)
    with pytest.raises(
        SourceError, match=r"unreadable: 20\.00% of 5 rows \(limit 19\.00%\), first 0"
    ):
        quality_of(tmp_path, text, quality={"unreadable": 0.19})
    found = quality_of(tmp_path, text, quality={"unreadable": 0.2})
    assert found["unreadable"]["found"] == 1
    assert found["unreadable"]["examples"][0].startswith("0.csv, line 4: column ")
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["row"].to_pylist() == [0, 1, 3, 4]
    assert events["item_id"].to_pylist() == [0, 1, 2, 3]
    manifest = read_json(tmp_path / "data/raw/manifest.json")
    assert (manifest["rows"], manifest["dropped"]) == (5, {"unreadable": 1})


def test_a_row_with_two_unreadable_values_counts_once(tmp_path):
    text = csv("a,x,yesterday", "a,1,2019-10-01", "a,1,tomorrow")
    found = quality_of(tmp_path, text, quality={"unreadable": 1})["unreadable"]
    assert found["found"] == 2
    lines = [error.split(":")[0] for error in found["examples"]]
    assert lines == ["0.csv, line 2", "0.csv, line 4"]


def test_text_that_is_not_utf8_is_read_with_escapes_up_to_the_limit(tmp_path):
    path = tmp_path / "0.csv"
    rows = b"K\xe4se,1,2019-10-01\na,2,2019-10-01\n"
    path.write_bytes(b"session,item,time\n" + rows)
    source = {"urls": [str(path)]}
    with pytest.raises(SourceError, match=r"undecodable: 50.*line 2: column session.*encoding"):
        download(a_dataset(source=source), "mine", tmp_path / "data" / "raw")
    dataset = a_dataset(source=source, quality={"undecodable": 0.5})
    download(dataset, "mine", tmp_path / "data" / "raw")
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["session_id"].to_pylist() == ["K\\xe4se", "a"]


def test_a_sum_with_an_offset_may_be_outside(tmp_path):
    rows = ["a,1,2019-10-01,5", "a,2,2019-10-01,7000000000000", "a,3,1970-01-01,-1"]
    text = csv(*rows, "a,4,2019-10-01,", header="session,item,time,ms")
    limits = {"nulls": {"event_time": 1}}
    with pytest.raises(SourceError, match=r"outside: 66\.67% of 3 rows .*first 0\.csv, line 3"):
        quality_of(tmp_path, text, time={"offset": "ms"}, quality=limits)
    limits |= {"outside": None}
    found = quality_of(tmp_path, text, time={"offset": "ms"}, quality=limits)
    assert (found["unreadable"]["found"], found["outside"]["found"]) == (0, 2)


@pytest.mark.parametrize("block", [60, 1 << 20])
def test_unreadable_lines_of_json_are_dropped(tmp_path, monkeypatch, block):
    monkeypatch.setattr(batches, "BLOCK", block)
    good = [json.dumps({"session": "a", "item": item, "time": "2019-10-01"}) for item in range(4)]
    mixed = json.dumps({"session": [7], "item": 9, "time": "2019-10-01"})
    text = "\n".join([good[0], "", mixed, good[1], "{", "[1]", good[2], "  ", mixed, good[3]])
    source = {"format": "jsonl"}
    with pytest.raises(
        SourceError, match=r"0\.jsonl, line 3: column session holds a list\. .*source\.expl"
    ):
        quality_of(tmp_path, text, ending="jsonl", source=source)
    found = quality_of(tmp_path, text, ending="jsonl", source=source, quality={"unreadable": 0.5})
    assert (found["unreadable"]["found"], found["unreadable"]["of"]) == (4, 8)
    assert [error.split(":")[0] for error in found["unreadable"]["examples"]] == [
        "0.jsonl, line 3", "0.jsonl, line 5", "0.jsonl, line 6",
    ]  # fmt: skip
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["item_id"].to_pylist() == [0, 1, 2, 3]
    assert events["row"].to_pylist() == [0, 2, 5, 7]  # blank lines are no rows
