"""Messages that were delivered twice: counted over all files, and dropped by setting."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dayahead.core.errors import SourceError
from dayahead.core.files import read_json
from dayahead.download import convert, repeats
from dayahead.download.stage import download
from support.raw_logs import csv, log_of, quality_of

DROP = {"sessions": {"duplicates": "drop"}}
MESSAGES = {"columns": {"event_id": "message"}}


def rows_of(folder):
    """Rows of the event table by part, with those of each file from 0."""
    paths = sorted((folder / "data/raw").glob("events-*.parquet"))
    return [pq.read_table(path).to_pylist() for path in paths]


def kept(folder):
    return [[row["row"] for row in part] for part in rows_of(folder)]


def manifest(folder):
    return read_json(folder / "data/raw/manifest.json")


FILES = (
    csv("a,1,2019-10-01 00:00:01", "a,2,2019-10-01 00:00:02", "a,1,2019-10-01 00:00:01"),
    csv("a,2,2019-10-01 00:00:02", "b,2,2019-10-01 00:00:02", "a,2,2019-10-01 00:00:03"),
    csv("a,2,2019-10-01 00:00:03", "a,1,2019-10-01 00:00:01"),
    csv("c,9,2019-10-05"),  # no other file has its times
)


def test_they_are_counted_over_all_files_also_where_files_come_from_the_cache(tmp_path):
    for _ in range(2):
        found = quality_of(tmp_path, *FILES)["duplicates"]
        assert (found["found"], found["of"], found["worst"]) == (4, 9, "100.00% 2.csv")
        assert found["examples"] == ["0.csv, line 4", "1.csv, line 2", "2.csv, line 2"]
    assert kept(tmp_path) == [[0, 1, 2], [0, 1, 2], [0, 1], [0]]
    with pytest.raises(SourceError, match=r"duplicates: 44\.44% of 9 rows \(limit 40\.00%\)"):
        quality_of(tmp_path, *FILES, quality={"duplicates": 0.4})


def test_the_first_of_each_stays_where_they_are_dropped(tmp_path):
    found = quality_of(tmp_path, *FILES, **DROP)["duplicates"]
    assert (found["found"], found["of"]) == (4, 9)
    assert kept(tmp_path) == [[0, 1], [1, 2], [0]]
    written = manifest(tmp_path)
    assert (written["rows"], written["events"], written["dropped"]) == (9, 5, {"duplicate": 4})
    assert [each["events"] for each in written["files"]] == [2, 2, 0, 1]
    # A part keeps the number of its first row in the whole log.
    assert [(part["first_row"], part["events"]) for part in written["parts"]] == [
        (0, 2), (3, 2), (8, 1),
    ]  # fmt: skip


def test_files_that_are_appended_leave_earlier_parts_as_they_are(tmp_path):
    quality_of(tmp_path, *FILES[:2], **DROP)
    before = [part["sha256"] for part in manifest(tmp_path)["parts"]]
    quality_of(tmp_path, *FILES, **DROP)
    assert [part["sha256"] for part in manifest(tmp_path)["parts"]][:2] == before


def test_more_than_a_tenth_is_said(tmp_path, caplog):
    quality_of(tmp_path, *FILES, **DROP)
    line = "download: 44 % of the rows (4) were dropped by sessions.duplicates: drop"
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [line]


def test_of_the_rows_with_one_message_id_the_first_stays(tmp_path):
    header = "session,item,time,message"
    first = csv("a,1,2019-10-01,m1", "a,2,2019-10-01,m2", "a,3,2019-10-01,", header=header)
    second = csv(
        "a,2,2019-10-01,m2",  # the same
        "b,5,2019-10-09,m1",  # another event under the same id
        "a,3,2019-10-01,",  # equal to one, but neither has an id
        "a,1,2019-10-01,m3",  # equal but for the id
        header=header,
    )
    found = quality_of(tmp_path, first, second, **MESSAGES)
    assert {
        check: (found[check]["found"], found[check]["examples"])
        for check in ("duplicates", "event_ids", "event_id_conflicts")
    } == {
        "duplicates": (2, ["1.csv, line 2", "1.csv, line 4"]),
        "event_ids": (2, ["1.csv, line 2", "1.csv, line 3"]),
        "event_id_conflicts": (1, ["1.csv, line 3"]),
    }
    assert kept(tmp_path) == [[0, 1, 2], [2, 3]]
    assert manifest(tmp_path)["dropped"] == {"repeated event_id": 2}
    quality_of(tmp_path, first, second, **MESSAGES, **DROP)
    assert kept(tmp_path) == [[0, 1, 2], [3]]
    assert manifest(tmp_path)["dropped"] == {"repeated event_id": 2, "duplicate": 1}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["2019-10-01", "2019-10-01 00:00:01", "2019-10-03", "2019-10-04"]),
        st.sampled_from(["m1", "m2", ""]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.long
@given(
    rows=EVENTS,
    cuts=st.lists(st.integers(0, 20), max_size=3),
    has_ids=st.booleans(),
    sizes=st.sampled_from([(1 << 25, 1 << 22), (3, 2)]),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_how_a_log_is_cut_into_files_does_not_matter(
    tmp_path_factory, monkeypatch, rows, cuts, has_ids, sizes
):
    """Equal to plain Python, whatever is held in memory at once."""
    folder = tmp_path_factory.mktemp("log")
    monkeypatch.setattr(repeats, "MAX_HASHES", sizes[0])
    monkeypatch.setattr(repeats, "MAX_ROWS", sizes[1])
    monkeypatch.setattr(convert, "ROW_GROUP", 2)
    monkeypatch.setattr(convert, "MAX_EVENTS", 4)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    files = [
        csv(*map(",".join, rows[begin:end]), header="session,item,time,message")
        for begin, end in pairwise(bounds)
    ]
    dataset = log_of(folder, *files, **DROP, **(MESSAGES if has_ids else {}))
    download(dataset, "mine", folder / "data" / "raw")
    firsts = [part["first_row"] for part in manifest(folder)["parts"]]
    found = [first + row for first, part in zip(firsts, kept(folder), strict=True) for row in part]
    seen, ids, expected = set(), set(), []
    for number, row in enumerate(rows):
        content = row if has_ids else row[:3]
        if content not in seen and not (has_ids and row[3] in ids):
            expected.append(number)
        seen.add(content)
        ids.update({row[3]} - {""})
    assert found == expected


def test_equal_hashes_alone_make_no_repeat(tmp_path, monkeypatch):
    monkeypatch.setattr(
        repeats.pd.util, "hash_pandas_object",
        lambda frame, **_: repeats.pd.Series(np.zeros(len(frame), np.uint64)),
    )  # fmt: skip
    quality_of(tmp_path, *FILES, **DROP)
    assert kept(tmp_path) == [[0, 1], [1, 2], [0]]


def test_parts_without_common_times_are_not_read_again(tmp_path, monkeypatch):
    days = [csv(f"a,1,2019-10-0{day}", f"a,2,2019-10-0{day} 12:00") for day in range(1, 4)]
    dataset = log_of(tmp_path, *days)
    download(dataset, "mine", tmp_path / "data" / "raw")
    monkeypatch.setattr(repeats.pq, "ParquetFile", None)
    download(dataset, "mine", tmp_path / "data" / "raw")
    assert kept(tmp_path) == [[0, 1]] * 3


def test_values_that_are_null_are_equal(tmp_path):
    table = pa.table({"session": ["a"] * 3, "item": [1] * 3, "time": [1_700_000_000] * 3,
                      "price": [None, float("nan"), 1.0]})  # fmt: skip
    for number in range(2):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    dataset = log_of(
        tmp_path, source={"urls": [str(tmp_path / f"{n}.parquet") for n in range(2)],
                          "format": "parquet"},
        time={"unit": "s"}, features={"price": {"kind": "number", "column": "price"}}, **DROP,
    )  # fmt: skip
    download(dataset, "mine", tmp_path / "data" / "raw")
    assert kept(tmp_path) == [[0, 2]]
