"""Census: how many rows are at fault, and where the first ones stand."""

import zipfile
from itertools import pairwise
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.core.files import read_json
from dayahead.download import parts, records
from dayahead.download.stage import download
from support.raw_logs import PRICE, csv, found_in
from support.sources import a_dataset


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))


def finding(found: int, of: int, *examples: str, **others: Any) -> dict:
    share = {"share": found / of}
    return {"found": found, "of": of, "limit": None, "examples": list(examples), **share, **others}


def test_counts_and_places_of_every_check(tmp_path):
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
    found = found_in(tmp_path, first, second, features=PRICE, quality={"nulls": {"session_id": 1}})
    assert found == {
        "unreadable": finding(0, 9, limit=0.0, worst=""),
        "nulls.session_id": finding(1, 9, "0.csv, line 3", limit=1.0, worst="14.29% 0.csv"),
        "nulls.item_id": finding(0, 9, limit=0.01, worst=""),
        "nulls.event_time": finding(0, 9, limit=0.01, worst=""),
        "nulls.price": finding(2, 9, "0.csv, line 6", "1.csv, line 2", worst="50.00% 1.csv"),
        "negative.price": finding(2, 8, "0.csv, line 5", "0.csv, line 8", worst="33.33% 0.csv"),
        "backwards": finding(
            3, 8, "0.csv, line 5", "0.csv, line 8", "1.csv, line 3", worst="50.00% 1.csv"
        ),
        "duplicates": finding(2, 8, "0.csv, line 4", "0.csv, line 7", worst="33.33% 0.csv"),
        "empty_days": finding(2, 5, "1 after 2019-10-01", "1 after 2019-10-03", worst=""),
    }


def test_places_across_batches_files_and_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "BLOCK", 200)
    monkeypatch.setattr(parts, "ROW_GROUP", 4)
    monkeypatch.setattr(parts, "PART", 16)
    rows = [f"a,{number},2019-10-01 00:{number:02}:00" for number in range(60)]
    rows[40] = "a,40,2019-10-01 00:00:00"  # backwards, in a later batch
    rows[35] = rows[34]  # a duplicate, in a later part: 32..47
    rows[48] = rows[47]  # none within a part
    found = found_in(tmp_path, csv(*rows))
    assert found["backwards"]["examples"] == ["0.csv, line 42"]
    assert (found["duplicates"]["found"], found["duplicates"]["examples"]) == (
        1,
        ["0.csv, line 37"],
    )


def test_names_the_member_of_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("one.csv", csv("a,1,2019-10-02", "a,1,2019-10-01"))
        archive.writestr("two.csv", csv("a,1,2019-10-03", ",1,2019-10-01"))
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


@given(rows=ROWS.filter(lambda rows: any(None not in row[:3] for row in rows)))
@settings(max_examples=30, deadline=None)
def test_figures_agree_with_a_plain_count(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("log")
    columns = dict(zip(["session", "item", "time", "price"], zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "0.parquet")
    dataset = a_dataset(
        source={"urls": [str(folder / "0.parquet")], "format": "parquet"},
        time={"unit": "s"},
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
        "backwards": sum(later < before for before, later in pairwise(times)),
        "duplicates": len(events) - len(set(events)),
        "empty_days": max(days) - min(days) + 1 - len(days),
    }
