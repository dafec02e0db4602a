"""The stage: configured data sets in their original layout, the manifest, nothing half-written."""

import gzip
import hashlib
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import DataError, SourceError
from dayahead.core.files import read_json
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.schema import DatasetConfig, load_dataset
from dayahead.download import convert
from dayahead.download.stage import download
from support.sources import a_dataset

DATASETS = Path(__file__).parents[3] / "datasets"
REES46 = """\
event_time,event_type,product_id,category_id,category_code,brand,price,user_id,user_session
2019-10-01 00:00:00 UTC,view,44600062,2103807459595387724,,shiseido,35.79,541312140,72d76fde
2019-10-01 00:00:01 UTC,cart,3900821,2053013552326770905,appliances.kitchen,,0.00,554748717,
2019-10-01 00:00:01 UTC,view,17200506,2053013559792632471,furniture,,543.10,519107250,566511c2
"""


@pytest.fixture(autouse=True)
def _data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYAHEAD_DATA", str(tmp_path))


def configured(name: str, *urls: Path | str) -> DatasetConfig:
    """Return a data set of the project, with other URLs if given."""
    dataset = load_dataset(name, DATASETS)
    if not urls:
        return dataset
    return replace(dataset, source=replace(dataset.source, urls=tuple(map(str, urls))))


def with_nulls(dataset: DatasetConfig) -> DatasetConfig:
    """Allow half of the rows to lack a session."""
    return replace(dataset, quality=replace(dataset.quality, nulls={"session_id": 0.5}))


def events_of(folder: Path) -> list[dict]:
    return [
        row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]


def fetch(dataset: DatasetConfig, tmp_path: Path) -> tuple[list[dict], dict]:
    folder = tmp_path / "data" / "raw"
    download(dataset, "mine", folder)
    assert [path.name for path in folder.parent.iterdir()] == ["raw"]
    manifest = read_json(folder / "manifest.json")
    assert manifest["rows"] == manifest["events"] + sum(manifest["dropped"].values())
    return events_of(folder), manifest


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def test_rees46(tmp_path):
    path = tmp_path / "2019-Oct.csv.gz"
    path.write_bytes(gzip.compress(REES46.encode()))
    events, manifest = fetch(with_nulls(configured("rees46", path)), tmp_path)
    assert events[0] == {
        "session_id": "72d76fde", "user_id": "541312140", "item_id": 44600062,
        "event_time": at(2019, 10, 1), "row": 0, "event_type": "view",
        "category_id": 2103807459595387724, "category_code": None, "brand": "shiseido",
        "price": 35.79, "relative_price": 35.79,
    }  # fmt: skip
    assert [event["row"] for event in events] == [0, 2]
    assert manifest["dropped"] == {"no session_id": 1}
    assert manifest["log_end"] == "2019-11-01T00:00:00+00:00"


@pytest.mark.parametrize("name", ["rees46_head", "g1_rees46"])
def test_rees46_layout_in_local_folders(tmp_path, name):
    dataset = configured(name)
    path = Path(dataset.source.urls[0])
    path.parent.mkdir()
    path.write_bytes(gzip.compress(REES46.encode()))
    assert len(fetch(with_nulls(dataset), tmp_path)[0]) == 2
    assert dataset.features == configured("rees46").features


def test_diginetica(tmp_path):
    dataset = configured("diginetica")
    path = Path(dataset.source.urls[0])
    path.parent.mkdir()
    text = "session_id;user_id;item_id;timeframe;eventdate\n1;NA;81766;526309;2016-05-09\n"
    path.write_bytes(gzip.compress((text + "1;7;31331;0;2016-05-09\n").encode()))
    events, _ = fetch(dataset, tmp_path)
    assert events[0] == {
        "session_id": "1", "user_id": None, "item_id": 81766, "row": 0,
        "event_time": at(2016, 5, 9, 0, 8, 46, 309000),
    }  # fmt: skip
    assert events[1]["user_id"] == "7"


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ({"complete_until": "yesterday"}, "2026-01-02T00:00:00+00:00"),
        ({"settle": "15h"}, "2026-01-02T00:00:00+00:00"),
        # Although there are events after it: the rest of their day is still to come.
        ({"complete_until": "2026-01-01T08:30:00Z"}, "2026-01-01T08:30:00+00:00"),
        ({}, "2026-01-01T09:00:00+00:00"),
    ],
)
def test_the_log_is_complete_up_to_where_the_data_set_says_so(tmp_path, time, expected):
    path = tmp_path / "log.csv"
    path.write_text("session,item,time\na,1,2026-01-01 08:00:00\na,2,2026-01-01 09:00:00\n")
    _, manifest = fetch(a_dataset(source={"urls": [str(path)]}, time=time), tmp_path)
    assert manifest["log_end"] == expected


def test_the_synthetic_log_is_complete(tmp_path):
    dataset = configured("synthetic")
    small = replace(dataset.source.synthetic, days=2, sessions_per_day=50)
    dataset = replace(dataset, source=replace(dataset.source, synthetic=small))
    _, manifest = fetch(dataset, tmp_path)
    assert manifest["log_end"] == "2026-01-03T00:00:00+00:00"


def test_the_manifest_lists_files_parts_and_dropped_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "ROW_GROUP", 2)
    monkeypatch.setattr(convert, "MAX_EVENTS", 4)
    rows = [f"s,{i},2019-10-01 00:00:{59 - i:02}\n" for i in range(5)]
    first = "session,item,time\n" + "".join(rows) + ",1,2019-10-01\ns,,2019-10-01\n"
    second = "session,item,time\n" + rows[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(first)
    (tmp_path / "b.csv").write_text(second)
    limits = {"nulls": {"session_id": 0.2, "item_id": None}}
    dataset = a_dataset(source={"urls": ["b.csv", "a.csv"]}, quality=limits)
    events, manifest = fetch(dataset, tmp_path)
    assert "nulls.session_id" in {finding["check"] for finding in manifest.pop("quality")}
    assert [event["row"] for event in events] == [0, 0, 1, 2, 3, 4]
    assert pq.read_metadata(tmp_path / "data/raw/events-00001.parquet").num_row_groups == 2
    assert manifest == {
        "dataset": "mine",
        "log_end": "2019-10-01T00:00:59+00:00",
        "rows": 8,
        "events": 6,
        "dropped": {"no session_id": 1, "no item_id": 1},
        "files": [
            {
                "url": name, "file": name, "bytes": len(text), "rows": rows, "events": n,
                "sha256": hashlib.sha256(text.encode()).hexdigest(), "dropped": dropped,
            }
            for name, text, rows, n, dropped in (
                ("b.csv", second, 1, 1, {}),
                ("a.csv", first, 7, 5, {"no session_id": 1, "no item_id": 1}),
            )
        ],
        "parts": [
            {
                "file": f"events-0000{i}.parquet", "events": n, "first_row": min(i, 1),
                "sha256": sha256_of(tmp_path / f"data/raw/events-0000{i}.parquet"),
                "first_event": f"2019-10-01T00:00:{first}+00:00",
                "last_event": f"2019-10-01T00:00:{last}+00:00",
            }
            for i, (n, first, last) in enumerate([(1, 59, 59), (4, 56, 59), (1, 55, 55)])
        ],
    }  # fmt: skip


def test_rows_left_out_by_where_are_counted_and_empty_parts_are_read(tmp_path, caplog):
    texts = ["s,1,2019-10-01,view\ns,2,2019-10-01,cart\n", "s,3,2019-10-01,cart\n", ""]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.csv").write_text("session,item,time,event\n" * bool(text) + text)
    urls = [str(tmp_path / "*.csv")]

    def manifest_of(*kinds):
        fetch(a_dataset(source={"urls": urls, "where": {"event": list(kinds)}}), tmp_path)
        return read_json(tmp_path / "data/raw/manifest.json")

    manifest = manifest_of("view", "buy")
    assert (manifest["rows"], manifest["dropped"]) == (3, {"source.where event": 2})
    assert "2.csv: is empty" in caplog.text
    events = pq.read_table(tmp_path / "data/raw/events-00000.parquet")
    assert events.select(["item_id", "row"]).to_pylist() == [{"item_id": 1, "row": 0}]
    with pytest.raises(SourceError, match=r"all 3 rows: column event has cart \(2 rows\), .*view"):
        manifest_of("buy")
    urls[0] = str(tmp_path / "2.csv")
    with pytest.raises(SourceError, match=r"all of its 1 files are empty: 2\.csv"):
        manifest_of("view")


@pytest.mark.parametrize(
    ("content", "source", "message"),
    [
        (b"session,item,time\ns,x,2019-10-01\n", {}, "line 2: column item"),
        (b"session,item,time\n", {}, r"mine\.yaml: all of its 1 files are empty: log\.csv"),
        (b"session,item,time\n,1,2019-10-01\n", {}, r"mine\.yaml: .*session_id: 100\.00% of 1 row"),
        (b"session,item\n", {}, "no column time"),
        (b"session,item,time\n", {"sha256": {"log.csv": "0" * 64}}, "wrong checksum"),
        (b"session,item,time\n", {"sha256": {"lag.csv": "0" * 64}}, "sha256 names lag.csv"),
    ],
)
def test_a_failure_leaves_data_raw_unchanged(tmp_path, content, source, message):
    folder = tmp_path / "data" / "raw"
    folder.mkdir(parents=True)
    (folder / "old").write_text("old")
    (tmp_path / "log.csv").write_bytes(content)
    dataset = a_dataset(source={"urls": [str(tmp_path / "log.csv")], **source})
    with pytest.raises(SourceError, match=message):
        download(dataset, "mine", folder)
    assert [path.name for path in folder.parent.iterdir()] == ["raw"]
    assert (folder / "old").read_text() == "old"


def test_the_files_of_a_killed_run_are_removed(tmp_path):
    left = tmp_path / "data" / ".raw.partial"
    left.mkdir(parents=True)
    (left / "events-00099.parquet").write_text("half")
    (tmp_path / "log.csv").write_bytes(b"session,item,time\ns,1,2019-10-01\n")
    fetch(a_dataset(source={"urls": [str(tmp_path / "log.csv")]}), tmp_path)
    assert not (tmp_path / "data/raw/events-00099.parquet").exists()


def test_an_unwritable_folder_is_an_error(tmp_path):
    (tmp_path / "data").write_text("a file where a folder must be")
    with pytest.raises(DataError, match=r"raw: cannot be written.*in the way"):
        download(configured("synthetic"), "synthetic", tmp_path / "data" / "raw")


REAL = os.environ.get("DAYAHEAD_DATA")


@pytest.mark.skipif(REAL is None, reason="DAYAHEAD_DATA names no folder with the real logs")
@pytest.mark.parametrize(
    ("name", "path", "rows", "first", "last"),
    [
        ("rees46_head", "rees46-head/2019-Oct-head.csv.gz", 17_434,
         at(2019, 10, 1), at(2019, 10, 1, 2, 50)),
        ("diginetica", "diginetica-sample/sample_train-item-views.csv.gz", 12_391,
         at(2016, 1, 3, 0, 0, 7, 112000), at(2016, 6, 1, 0, 18, 44, 305000)),
        ("g1", "g1-news/clicks-2017-10-17.csv.gz", 16_638, None, None),
    ],
)  # fmt: skip
def test_real_logs(tmp_path, name, path, rows, first, last):
    events, manifest = fetch(configured(name, Path(REAL) / path), tmp_path)
    assert (manifest["rows"], manifest["events"], manifest["dropped"]) == (rows, rows, {})
    times = [event["event_time"] for event in events]
    assert first is None or (min(times), max(times)) == (first, last)
