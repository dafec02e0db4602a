"""Quality of the input: what is counted, where it is said to stand, and what is too much."""

import json

import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import ConfigError, SourceError
from dayahead.core.files import read_json
from dayahead.download import json_lines
from dayahead.download.stage import download
from support.raw_logs import PRICE, csv, found_in
from support.sources import a_dataset


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))


def test_the_report_is_an_aligned_table(tmp_path):
    found_in(tmp_path, csv("a,1,2019-10-01", "a,1,2019-10-01"), quality={"duplicates": 0.5})
    lines = (tmp_path / "data/raw/quality.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    cells = {
        row[0]: row[1:] for row in ([c.strip() for c in line.split("|")[1:-1]] for line in table)
    }
    assert cells["check"] == [
        "found", "of", "share", "limit", "verdict", "most in one file", "first",
    ]  # fmt: skip
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
def test_more_than_the_limit_is_an_error(tmp_path, limit, too_low, enough, message):
    def quality(share):
        key, _, column = limit.partition(".")
        return {key: {column: share} if column else share}

    found_in(tmp_path, LATE_FIRST, features=PRICE, quality=quality(enough))
    kept = (tmp_path / "data/raw/manifest.json").read_bytes()
    with pytest.raises(SourceError) as caught:
        found_in(tmp_path, LATE_FIRST, features=PRICE, quality=quality(too_low))
    assert str(caught.value) == (
        f"datasets/mine.yaml: too much of the log is at fault: {limit}: {message}. Correct the "
        f"files, or, if that is how the log is, raise quality.{limit} there"
    )
    assert (tmp_path / "data/raw/manifest.json").read_bytes() == kept


def test_all_that_is_too_much_is_told_at_once(tmp_path):
    limits = {"backwards": 0, "duplicates": 0}
    with pytest.raises(
        SourceError, match=r"backwards: .*; duplicates: .*raise quality\.backwards, "
    ):
        found_in(tmp_path, LATE_FIRST, features=PRICE, quality=limits)


def test_what_an_event_needs_has_a_limit_of_its_own(tmp_path):
    rows = ["a,1,2019-10-01"] * 198
    found = found_in(tmp_path, csv(*rows, ",1,2019-10-01", "a,,2019-10-01"))
    assert found["nulls.session_id"]["limit"] == 0.01
    for bad in (",1,2019-10-01", "a,,2019-10-01", "a,1,"):
        with pytest.raises(
            SourceError, match=r"1\.49% of 201 rows \(limit 1\.00%\), first 0\.csv, l"
        ):
            found_in(tmp_path, csv(*rows, bad, bad, bad))


def test_a_user_is_needed_where_sessions_are_cut_from_users(tmp_path):
    by_user = {
        "columns": {"session_id": None, "user_id": "session"},
        "sessions": {"gap_minutes": 30.0, "repeats": {"rule": "keep", "scope": "user"}},
    }
    with pytest.raises(SourceError, match=r"nulls\.user_id: 50\.00% of 2 rows \(limit 1\.00%\)"):
        found_in(tmp_path, csv("a,1,2019-10-01", ",1,2019-10-01"), **by_user)


@pytest.mark.parametrize(
    ("quality", "message"),
    [
        ({"nulls": {"brand": 0.1}}, "quality.nulls: brand: expected some of session_id, item_id"),
        ({"negative": {"item_id": 0}}, "quality.negative: item_id: expected some of none"),
        ({"duplicates": 1.5}, "quality.duplicates"),
        ({"unreadable": None}, "quality.unreadable"),
        ({"doubles": 0}, "quality.doubles"),
    ],
)
def test_refuses_limits_of_what_is_not_there(quality, message):
    with pytest.raises(ConfigError, match=message):
        a_dataset(quality=quality)


UNREADABLE = [
    "x,2019-10-01",
    f"{2**63},2019-10-01",
    "1,yesterday",
    "1,1969-12-31",
    "1.5,2019-10-01",
]


@pytest.mark.parametrize("bad", UNREADABLE)
def test_rows_that_cannot_be_read_are_left_out_up_to_the_limit(tmp_path, bad):
    rows = [f"a,{number},2019-10-01 00:00:0{number}" for number in range(4)]
    text = csv(*rows[:2], f"a,{bad}", *rows[2:])
    with pytest.raises(SourceError, match=r"0\.csv, line 4: column (item|time): expected"):
        found_in(tmp_path, text)
    with pytest.raises(
        SourceError, match=r"unreadable: 20\.00% of 5 rows \(limit 19\.00%\), first 0"
    ):
        found_in(tmp_path, text, quality={"unreadable": 0.19})
    found = found_in(tmp_path, text, quality={"unreadable": 0.2})
    assert found["unreadable"]["found"] == 1
    assert found["unreadable"]["examples"][0].startswith("0.csv, line 4: column ")
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["row"].to_pylist() == [0, 1, 3, 4]
    assert events["item_id"].to_pylist() == [0, 1, 2, 3]
    manifest = read_json(tmp_path / "data/raw/manifest.json")
    assert (manifest["rows"], manifest["dropped"]) == (5, {"unreadable": 1})


def test_a_row_with_two_unreadable_values_counts_once(tmp_path):
    text = csv("a,x,yesterday", "a,1,2019-10-01", "a,1,tomorrow")
    found = found_in(tmp_path, text, quality={"unreadable": 1})["unreadable"]
    assert found["found"] == 2
    assert [told.split(":")[0] for told in found["examples"]] == ["0.csv, line 2", "0.csv, line 4"]


def test_text_that_is_not_utf8_is_unreadable(tmp_path):
    path = tmp_path / "0.csv"
    path.write_bytes(b"session,item,time\n\xff,1,2019-10-01\na,2,2019-10-01\n")
    dataset = a_dataset(source={"urls": [str(path)]}, quality={"unreadable": 0.5})
    download(dataset, "mine", tmp_path / "data" / "raw")
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events.select(["session_id", "row"]).to_pylist() == [{"session_id": "a", "row": 1}]


def test_an_offset_that_leads_out_of_time_is_unreadable(tmp_path):
    rows = ["a,1,2019-10-01,5", "a,2,2019-10-01,7000000000000", "a,3,1970-01-01,-1"]
    text = csv(*rows, "a,4,2019-10-01,", header="session,item,time,ms")
    with pytest.raises(SourceError, match=r"line 3: column ms: expected a time .*column time"):
        found_in(tmp_path, text, time={"offset": "ms"})
    limits = {"unreadable": 0.5, "nulls": {"event_time": 1}}
    assert (
        found_in(tmp_path, text, time={"offset": "ms"}, quality=limits)["unreadable"]["found"] == 2
    )


@pytest.mark.parametrize("block", [60, 1 << 20])
def test_lines_of_json_that_cannot_be_read_are_left_out(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_lines, "BLOCK", block)
    good = [json.dumps({"session": "a", "item": item, "time": "2019-10-01"}) for item in range(4)]
    mixed = json.dumps({"session": 7, "item": 9, "time": "2019-10-01"})
    text = "\n".join([good[0], "", mixed, good[1], "{", "[1]", good[2], "  ", mixed, good[3]])
    source = {"format": "jsonl"}
    with pytest.raises(
        SourceError, match=r"0\.jsonl, line 3: expected a JSON object with|line 5: not"
    ):
        found_in(tmp_path, text, ending="jsonl", source=source)
    found = found_in(tmp_path, text, ending="jsonl", source=source, quality={"unreadable": 0.5})
    assert (found["unreadable"]["found"], found["unreadable"]["of"]) == (4, 8)
    assert [told.split(":")[0] for told in found["unreadable"]["examples"]] == [
        "0.jsonl, line 3", "0.jsonl, line 5", "0.jsonl, line 6",
    ]  # fmt: skip
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events["item_id"].to_pylist() == [0, 1, 2, 3]
    assert events["row"].to_pylist() == [0, 2, 5, 7]  # blank lines are no rows


def test_a_ragged_row_stays_an_error(tmp_path):
    with pytest.raises(SourceError, match="line 3: not a row of this table"):
        found_in(tmp_path, csv("a,1,2019-10-01", "a,1"), quality={"unreadable": 1})
