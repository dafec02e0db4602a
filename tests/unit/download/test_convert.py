"""Conversion: each source file once, its events files cached and verified when used."""

import gzip
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dayahead.core.cache import recorded_hashes
from dayahead.core.errors import DataError, SourceError
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.forgotten import ForgottenConfig
from dayahead.download import convert, parts
from dayahead.download.stage import download
from support.sources import Served, a_dataset, serving

HEADER = "session,item,time\n"


@pytest.fixture
def converted_files(monkeypatch):
    """Names of the files that are converted, in order."""
    names = []
    original = convert._convert

    def recorded(source, *rest):
        names.append(source.file)
        return original(source, *rest)

    monkeypatch.setattr(convert, "_convert", recorded)
    return names


@pytest.fixture
def entries(tmp_path):
    """Folders in the cache of converted files, unfinished and damaged ones included."""
    folder = tmp_path / "root/.dayahead/events"
    return lambda: sorted(path for path in folder.iterdir() if path.name != "locks")


def put(folder: Path, name: str, session: str = "s") -> Path:
    rows = "".join(f"{session},{item},2019-10-01 00:00:0{item}\n" for item in range(3))
    path = folder / name
    path.write_text(HEADER + rows)
    return path


def raw_after(tmp_path: Path, *paths: Path, name: str = "mine", **sections: Any) -> dict[str, str]:
    """Download; return the sha256 of every file of data/raw."""
    source = {"urls": [str(path) for path in paths], **sections.pop("source", {})}
    folder = tmp_path / "data" / "raw"
    shutil.rmtree(folder, ignore_errors=True)  # as DVC does before each run
    download(a_dataset(source=source, **sections), name, folder)
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir())}


def test_a_file_is_converted_once(tmp_path, converted_files):
    first, second = put(tmp_path, "a.csv"), put(tmp_path, "b.csv", "other")
    alone = raw_after(tmp_path, first)
    both = raw_after(tmp_path, first, second)
    assert converted_files == ["a.csv", "b.csv"]
    assert both["events-00000.parquet"] == alone["events-00000.parquet"]
    assert raw_after(tmp_path, first) == alone
    assert raw_after(tmp_path, second)["events-00000.parquet"] == both["events-00001.parquet"]
    assert converted_files == ["a.csv", "b.csv"]


def test_events_files_are_hard_links_to_the_cache(tmp_path, entries, converted_files):
    path = put(tmp_path, "a.csv")
    whole = raw_after(tmp_path, path)
    part = tmp_path / "data/raw/events-00000.parquet"
    assert part.stat().st_nlink == 2
    assert part.samefile(entries()[0] / "events-00000.parquet")
    part.chmod(0o444)  # as DVC may do
    assert raw_after(tmp_path, path) == whole
    assert len(converted_files) == 1


@pytest.mark.parametrize(
    ("sections", "is_cached"),
    [
        ({"description": "other words"}, True),
        ({"time": {"complete_until": "2030-01-01T00:00:00Z"}}, True),
        ({"quality": {"duplicates": 1}}, True),
        ({"split": {"seed": 7}}, True),
        ({"features": {"hour": {"kind": "hour"}}}, True),
        ({"quality": {"unreadable": 0.1}}, False),
        ({"time": {"zone": "Europe/Oslo"}}, False),
        ({"time": {"format": "%F %T"}}, False),
        ({"time": {"between": ["2019-10-01", "2019-10-02"]}}, False),
        ({"quality": {"outside": 1, "stray": 1, "ambiguous": 1}}, True),
        ({"columns": {"item_id": {"column": "item", "type": "string"}}}, False),
        ({"columns": {"user_id": "session"}}, False),
        ({"features": {"same": {"kind": "number", "column": "item"}}}, False),
        ({"features": {"same": {"kind": "categorical", "column": "item"}}}, False),
        ({"source": {"nulls": ["", "none"]}}, False),
        ({"source": {"quote": None}}, False),
        ({"source": {"decimal": ","}}, False),
        ({"source": {"encoding": "cp1252"}}, False),
        ({"source": {"escape": "\\"}}, False),
        ({"source": {"where": {"item": [0, "1"]}}}, False),
        ({"quality": {"undecodable": 0}}, True),
        ({"source": {"thousands": "'"}}, False),
        ({"quality": {"multiline": 1}}, True),
    ],
)
def test_a_changed_setting_converts_again_if_it_is_read(
    tmp_path, converted_files, sections, is_cached
):
    path = put(tmp_path, "a.csv")
    raw_after(tmp_path, path)
    raw_after(tmp_path, path, **sections)
    assert len(converted_files) == (1 if is_cached else 2)


def test_changed_content_or_compression_converts_again(tmp_path, converted_files):
    path = put(tmp_path, "a.csv")
    raw_after(tmp_path, path)
    path.write_text(path.read_text() + "t,9,2019-10-01\n")
    raw_after(tmp_path, path)
    assert pq.read_table(tmp_path / "data/raw/events-00000.parquet").num_rows == 4
    compressed = tmp_path / "a.csv.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    raw_after(tmp_path, compressed)
    assert converted_files == ["a.csv", "a.csv", "a.csv.gz"]


@pytest.mark.parametrize("what", ["source_fingerprint", "package_version"])
def test_other_source_code_or_packages_convert_again(tmp_path, converted_files, monkeypatch, what):
    path = put(tmp_path, "a.csv")
    raw_after(tmp_path, path)
    monkeypatch.setattr(convert, what, lambda *_: "other")
    raw_after(tmp_path, path)
    assert len(converted_files) == 2


def garble(entry):
    (entry / "events-00000.parquet").write_bytes(b"garbage")


def lose(entry):
    (entry / "events-00000.parquet").unlink()


def change_a_number(entry):
    record = entry / "conversion.json"
    record.write_text(record.read_text().replace('"events": ', '"events": 1', 1))


@pytest.mark.parametrize("damage", [garble, lose, change_a_number])
def test_a_damaged_entry_is_set_aside_and_converted_again(
    tmp_path, converted_files, entries, caplog, damage
):
    path = put(tmp_path, "a.csv")
    whole = raw_after(tmp_path, path)
    (entry,) = entries()
    for _ in range(2):
        damage(entry)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert raw_after(tmp_path, path) == whole
        assert f"{entry}: damaged" in caplog.text
    assert converted_files == ["a.csv"] * 3
    assert [found.name for found in entries()] == [entry.name, f"{entry.name}.damaged"]


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.clear(),
        lambda record: record.update(rows="many"),
        lambda record: record["parts"][0].update(file="../../../../secret.parquet"),
        lambda record: record["parts"][0].update(file="events-00001.parquet"),
    ],
)
def test_an_entry_that_is_valid_by_its_hashes_but_unreadable_is_converted_again(
    tmp_path, converted_files, entries, caplog, change
):
    path = put(tmp_path, "a.csv")
    (tmp_path / "secret.parquet").write_text("secret")
    whole = raw_after(tmp_path, path)
    (entry,) = entries()
    record = read_json(entry / "conversion.json")
    change(record)
    write_json(entry / "conversion.json", record)
    hashes = {name: sha256_of(entry / name) for name in recorded_hashes(entry)}
    write_json(entry / "contents.json", hashes)
    assert raw_after(tmp_path, path) == whole
    assert caplog.text.count("damaged (") == 1
    assert converted_files == ["a.csv"] * 2


def test_rows_of_forgotten_users_are_left_out_and_counted(tmp_path, converted_files):
    """Ids are compared as the event table has them; rows of others keep their numbers."""
    users = ["4711", "\u00c5sa", "", "471", "asa"]
    rows = [f"{user},{n},2019-10-01 00:00:0{n},s{n}\n" for n, user in enumerate(users)]
    paths = {"mixed.csv": rows, "numbers.csv": [rows[0], rows[3]], "others.csv": [rows[4]]}
    for name, written in paths.items():
        (tmp_path / name).write_text("user,item,time,session\n" + "".join(written))
    files = [tmp_path / name for name in paths]
    columns = {"user_id": "user"}
    whole = raw_after(tmp_path, *files, columns=columns)
    listed = ForgottenConfig(key="a" * 32)
    forgotten = {"key": listed.key, "users": [listed.hash_of("4711"), listed.hash_of("\u00c5sa")]}
    without = raw_after(tmp_path, *files, columns=columns, forgotten=forgotten)
    events = [pq.read_table(tmp_path / f"data/raw/events-0000{n}.parquet") for n in range(3)]
    assert [each["user_id"].to_pylist() for each in events] == [
        [None, "471", "asa"],
        ["471"],
        ["asa"],
    ]
    assert [each["row"].to_pylist() for each in events] == [[2, 3, 4], [1], [0]]
    assert without["events-00002.parquet"] == whole["events-00002.parquet"]
    assert read_json(tmp_path / "data/raw/manifest.json")["dropped"] == {"forgotten": 3}
    assert len(converted_files) == 6  # it is part of the key
    raw_after(tmp_path, *files, columns=columns, forgotten=forgotten)
    assert len(converted_files) == 6


def test_a_failed_or_killed_conversion_leaves_nothing(tmp_path, converted_files, entries):
    path = put(tmp_path, "a.csv")
    path.write_text(path.read_text() + "t,9,yesterday\n")
    with pytest.raises(SourceError, match="line 5: column time"):
        raw_after(tmp_path, path)
    assert entries() == []
    put(tmp_path, "a.csv")
    whole = raw_after(tmp_path, path)
    (entry,) = entries()
    killed = entry.rename(entry.with_name(f".{entry.name}.partial"))
    (killed / "half").write_text("")
    assert raw_after(tmp_path, path) == whole
    assert entries() == [entry]
    assert not (entry / "half").exists()
    assert len(converted_files) == 3


def test_space_is_required_for_what_is_not_cached(tmp_path, monkeypatch):
    required = []
    monkeypatch.setattr(parts, "require_space", lambda *about: required.append(about))
    plain, compressed = put(tmp_path, "a.csv"), tmp_path / "b.csv.gz"
    compressed.write_bytes(gzip.compress((HEADER + "t,1,2019-10-01\n").encode()))
    raw_after(tmp_path, plain)
    raw_after(tmp_path, plain, compressed)
    raw_after(tmp_path, plain, compressed)
    needed = [plain.stat().st_size, 2 * compressed.stat().st_size, 0]
    cache = tmp_path / "root" / ".dayahead"
    assert required == [(cache, n, "the event table of mine") for n in needed]


def test_a_full_disk_is_an_error_before_the_first_row(tmp_path, monkeypatch, converted_files):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3))
    with pytest.raises(DataError, match="not enough space: the event table of mine"):
        raw_after(tmp_path, put(tmp_path, "a.csv"))
    assert converted_files == []


def test_the_space_of_all_files_is_required_before_the_first_is_fetched(tmp_path, monkeypatch):
    full = shutil.disk_usage("/")._replace(free=99)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with serving(Served({"a.csv": b"x" * 60, "b.csv": b"x" * 40})) as served:
        urls = [served.url("a.csv"), served.url("b.csv")]
        with pytest.raises(DataError, match="not enough space: fetching 2 files"):
            download(a_dataset(source={"urls": urls}), "mine", tmp_path / "raw")
        assert served.requests == []


def test_the_synthetic_log_is_generated_once(tmp_path, converted_files):
    sizes = {"seed": 1, "days": 2, "sessions_per_day": 20, "n_items": 50, "n_topics": 2}
    source = {"urls": [], "synthetic": {**sizes, "start": "2026-01-01T00:00:00Z"}}
    sections = {
        "source": source,
        "columns": {"session_id": "session_id", "item_id": {"column": "item_id", "type": "int"}},
        "time": {"column": "event_time"},
    }
    first = raw_after(tmp_path, **sections)
    assert raw_after(tmp_path, **sections) == first
    source["synthetic"]["seed"] = 2
    assert raw_after(tmp_path, **sections) != first
    assert converted_files == ["synthetic"] * 2
