"""The paper's four data sets, a few rows of each in the original layout, to the windows."""

import csv
import gzip
import io
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.files import read_json
from dayahead.dataset.schema import DatasetConfig, load_dataset
from dayahead.download.stage import download
from dayahead.windows.folder import WindowFolder, window_path
from support.archives import seven_zip_of, tar_of
from support.builders import preprocessed, window_config

DATASETS = Path(__file__).parents[3] / "datasets"


@pytest.fixture
def windows_of(tmp_path, monkeypatch):
    """Download a data set of the project from a file written here, and preprocess it."""
    monkeypatch.setenv("DAYAHEAD_DATA", str(tmp_path))

    def windows_of(dataset: DatasetConfig, source: Path, **window: object) -> WindowFolder:
        source_config = replace(dataset.source, urls=(str(source),))
        dataset = replace(dataset, source=source_config)
        download(dataset, "mine", tmp_path / "raw")
        return preprocessed(tmp_path, dataset, window_config(**window))

    return windows_of


def rows_of(folder: WindowFolder, window: str) -> list[dict]:
    """Train sessions of a window."""
    path = window_path(folder.folder, "day", window, "train")
    return pq.read_table(path, partitioning=None).to_pylist()


def written(header: list[str], rows: list[list]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows] if header else rows)
    return text.getvalue().encode()


def vocabulary(folder: WindowFolder, column: str) -> list:
    return pq.read_table(folder.folder / f"vocabulary/{column}.parquet")["value"].to_pylist()


def load(name: str, **changes: object) -> DatasetConfig:
    dataset = load_dataset(name, DATASETS)
    every = {"train": (0, 1), "valid": (0, 1), "test": (0, 1)}
    return replace(dataset, split=replace(dataset.split, **every), **changes)


def test_rees46(tmp_path, monkeypatch, windows_of):
    monkeypatch.setenv("DAYAHEAD_DATA", str(tmp_path))
    header = ["event_time", "event_type", "product_id", "category_id", "category_code", "brand",
              "price", "user_id", "user_session"]  # fmt: skip
    rows = [
        [f"2019-10-01 00:00:0{n} UTC", kind, item, category, "", "acme", price, 7, session]
        for n, (kind, item, category, price, session) in enumerate(
            [
                ("view", 1, 10, "30.00", "a"),
                ("cart", 1, 10, "30.00", "a"),  # the user's same item again: dropped
                ("view", 2, 10, "10.00", "a"),
                ("view", 2, 10, "10.00", "b"),  # again, in another session
                ("view", 1, 10, "30.00", "b"),
                ("purchase", 3, 20, "0.00", "b"),
            ]
        )
    ]
    path = tmp_path / "2019-Oct.csv.gz"
    path.write_bytes(gzip.compress(written(header, rows)))
    time = load("rees46").time
    until = datetime.fromisoformat("2019-10-02T00:00:00+00:00")
    folder = windows_of(load("rees46", time=replace(time, complete_until=until)), path)
    first, second = rows_of(folder, "2019-10-01")
    assert (first["item_id"], second["item_id"]) == ([2, 3], [2, 4])
    assert vocabulary(folder, "item_id") == [1, 2, 3]
    # The mean of category 10 is (30 + 10 + 30) / 3; that of category 20 is 0.
    assert first["relative_price"] == pytest.approx([30 / (70 / 3) - 1, 10 / (70 / 3) - 1])
    assert second["relative_price"] == pytest.approx([30 / (70 / 3) - 1, 0])
    assert vocabulary(folder, "event_type") == ["view", "purchase"]


def test_yoochoose_in_blocks_from_the_first_session(tmp_path, windows_of):
    rows = [
        [1, "2014-04-07T03:00:00.000Z", 11, "0"],
        [1, "2014-04-07T03:01:00.000Z", 11, "0"],
        [1, "2014-04-07T03:02:00.000Z", 12, "S"],
        [2, "2014-04-08T02:59:00.000Z", 12, "0"],  # of the next day, but of the first block
        [2, "2014-04-08T02:59:30.000Z", 13, "7"],
        [3, "2014-04-08T03:00:00.000Z", 13, "0"],
        [3, "2014-04-08T03:00:01.000Z", 11, "0"],
    ]
    path = tmp_path / "yoochoose-data.7z"
    files = [("yoochoose-buys.dat", b"not clicks"), ("yoochoose-clicks.dat", written([], rows))]
    path.write_bytes(seven_zip_of(files))
    folder = windows_of(load("yoochoose"), path, origin="first_session")
    blocks = [
        [row["session_id"] for row in rows_of(folder, window.name)] for window in folder.windows
    ]
    assert blocks == [["1", "2"], ["3"]]
    assert rows_of(folder, folder.windows[0].name)[0]["item_id"] == [2, 3]
    assert vocabulary(folder, "category") == ["0", "S", "7"]


def test_g1(tmp_path, windows_of):
    header = ["user_id", "session_id", "session_start", "session_size", "click_article_id",
              "click_timestamp", "click_environment", "click_deviceGroup", "click_os",
              "click_country", "click_region", "click_referrer_type"]  # fmt: skip
    start = 1_506_826_800_000  # 2017-10-01 03:00 UTC, midnight in Sao Paulo
    rows = [
        [0, 5, start, 3, article, start + 3_600_000 * n, 4, 1, 17, 1, 9, 6]
        for n, article in enumerate([0, 99, 98])
    ]
    rows.append([1, 6, start, 1, 98, start + 86_400_000, 4, 3, 17, 1, 9, 6])  # the log's end
    (tmp_path / "g1-news").mkdir()
    path = tmp_path / "g1-news" / "clicks-2017-10-01.csv.gz"
    path.write_bytes(gzip.compress(written(header, rows)))
    folder = windows_of(load("g1"), path, timezone="America/Sao_Paulo")
    (session,) = rows_of(folder, "2017-10-01")
    assert session["item_id"] == [2, 3, 4]  # article 0 is an article
    assert vocabulary(folder, "item_id") == [0, 99, 98]
    assert session["hour_cos"][0] == 1  # midnight
    assert (session["device"], session["region"]) == ([2] * 3, [2] * 3)
    assert session["item_age"] == [0, 0, 0]


START = 1_483_225_200
"""Midnight in Oslo."""


def views(user: str, *moments: tuple[int, str | None], city: str = "trondheim") -> list[dict]:
    """ADRESSA's records of a user: minute and article, or none of the front page."""
    return [
        {
            "eventId": 1, "userId": user, "time": START + minute * 60, "city": city,
            "region": "sor-trondelag", "country": "no", "deviceType": "Desktop",
            "os": "Windows", "referrerHostClass": "internal", "activeTime": 12,
            "url": "http://adressa.no", "sessionStart": False, "sessionStop": False,
        }
        | ({"id": article, "category1": "nyheter|trondheim", "title": "?"} if article else {})
        for minute, article in moments
    ]  # fmt: skip


def json_of(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_adressa(tmp_path, windows_of):
    days = {
        "three_month/20170101": [
            # The front page is no article; after 31 minutes another session begins.
            *views("u", (0, "a"), (1, None), (2, "b"), (3, "a"), (34, "c"), (35, "a")),
            *views("v", (60, "a"), (90, "c"), city="oslo"),
        ],
        "three_month/20170116": views("w", (15 * 1440, "c"), (15 * 1440 + 1, "d")),
        "three_month/20170117": views("w", (16 * 1440, "x"), (16 * 1440 + 1, "y")),
    }
    path = tmp_path / "three_month.tar.gz"
    path.write_bytes(tar_of(((name, json_of(rows)) for name, rows in days.items()), "w:gz"))
    dataset = load("adressa")
    rarer = {
        name: replace(feature, min_count=4) if feature.min_count > 1 else feature
        for name, feature in dataset.features.items()
    }
    folder = windows_of(replace(dataset, features=rarer), path, timezone="Europe/Oslo")
    manifest = read_json(tmp_path / "raw" / "manifest.json")
    assert (manifest["rows"], manifest["events"]) == (10, 9)  # of the first sixteen days
    sessions = rows_of(folder, "2017-01-01")
    assert [row["item_id"] for row in sessions] == [[2, 3], [4, 2], [2, 4]]
    assert {row["user_id"] for row in sessions} == {"u", "v"}
    assert vocabulary(folder, "item_id") == ["a", "b", "c", "d"]
    assert [row["city"] for row in sessions] == [[2, 2], [2, 2], [1, 1]]  # oslo is too rare
    assert [row["category"] for row in rows_of(folder, "2017-01-16")] == [[2, 2]]
    # Ranks of six ages: three are 0, of new articles; the oldest is that of "a" at minute 60.
    age = read_json(folder.folder / "statistics.json")["features"]["item_age"]
    assert (age["n"], len(set(age["knots"]))) == (6, 4)
    ages = pa.array(row["item_age"] for row in sessions).flatten().to_pylist()
    assert ages[0] == ages[1] < 0 < ages[4] == max(ages)
