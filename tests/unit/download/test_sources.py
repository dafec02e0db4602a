"""Fetching: listing, verification, changes, room, and messages without secrets."""

import logging
import shutil

import fsspec
import pytest

from dayahead.core.errors import DataError, SourceError
from dayahead.download import servers
from dayahead.download import sources as fetching
from dayahead.download.sources import SourceFile, fetched, listed
from dayahead.download.stage import download
from support.fetches import BODY, SHA256, fetch, of_gets
from support.sources import Answer, a_dataset

LOG = b"session,item,time\ns,1,2024-01-01 10:00:00\ns,2,2024-01-01 10:01:00\n"
EVIL = "attachment; filename=../../evil.csv"

pytestmark = pytest.mark.usefixtures("own_store")


def test_fetches_once(serve, tmp_path):
    served = serve()
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    asked = len(served.asked)
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert len(served.asked) == asked
    kept = [p.name for p in (tmp_path / "root/.dayahead/downloads").glob("*/log*")]
    assert kept == ["log.csv.gz"]


@pytest.mark.parametrize("change", ["etag", "size"])
def test_begins_anew_when_the_file_has_changed(serve, monkeypatch, change):
    monkeypatch.setattr(servers, "ATTEMPTS", 1)
    served = serve(drops_after=[9999, 9999, 100])
    with pytest.raises(SourceError):
        fetch(served.url("log.csv.gz"))
    served.drops_after = []
    new = BODY[::-1] if change == "etag" else b"x" + BODY
    served.files["log.csv.gz"] = new
    served.etag = '"2"' if change == "etag" else served.etag
    assert fetch(served.url("log.csv.gz")) == new


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_refuses_a_file_that_changes_while_it_is_fetched(serve, sha256):
    served = serve()

    def change(answer: Answer) -> None:
        if answer.start == 5 * 8192:
            served.files["log.csv.gz"], served.etag = BODY[::-1], '"2"'

    served.twist = of_gets(change)
    said = "changed on the server meanwhile" if sha256 is None else "wrong checksum"
    with pytest.raises(SourceError, match=said):
        fetch(served.url("log.csv.gz"), sha256)
    assert fetch(served.url("log.csv.gz")) == BODY[::-1]


def test_asks_for_the_space_of_all_that_is_missing(serve, monkeypatch):
    served = serve()
    served.files["other.csv"] = BODY[:50_000]
    files = listed([served.url("log.csv.gz"), served.url("other.csv")], None)
    asked: list[int] = []
    monkeypatch.setattr(fetching, "require_space", lambda _, needed, what: asked.append(needed))
    fetching.require_room(files)
    fetched(files[1], None)
    fetching.require_room(files)
    assert asked == [152_400, 50_000, 102_400]


def test_writes_nothing_where_the_disk_is_full(serve, monkeypatch):
    served = serve()
    full = shutil.disk_usage("/")._replace(free=102_399)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(
        DataError, match=r"downloads: not enough space: fetching 1 files? needs 0\.1"
    ):
        fetch(served.url("log.csv.gz"))
    assert served.asked == []


def test_refuses_a_wrong_checksum_and_fetches_anew(serve):
    served = serve()
    with pytest.raises(SourceError, match=f"expected sha256 {'0' * 64}, found {SHA256}"):
        fetch(served.url("log.csv.gz"), "0" * 64)
    asked = len(served.asked)
    assert fetch(served.url("log.csv.gz"), SHA256.upper()) == BODY
    assert len(served.asked) > asked


def flipped(slot):
    path = slot / "log.csv.gz"
    path.write_bytes(BODY[:500] + bytes([BODY[500] ^ 1]) + BODY[501:])


def truncated(slot):
    (slot / "log.csv.gz").write_bytes(BODY[:500])


def with_half_a_note(slot):
    (slot / ".state.json").write_text('{"url": "ht')


@pytest.mark.parametrize("sha256", [None, SHA256])
@pytest.mark.parametrize("harm", [flipped, truncated, with_half_a_note])
def test_fetches_anew_what_was_damaged_in_the_store(serve, tmp_path, caplog, sha256, harm):
    served = serve()
    assert fetch(served.url("log.csv.gz"), sha256) == BODY
    asked = len(served.asked)
    (slot,) = (p for p in (tmp_path / "root/.dayahead/downloads").iterdir() if p.is_dir())
    harm(slot)
    assert fetch(served.url("log.csv.gz"), sha256) == BODY
    assert len(served.asked) > asked
    assert ("is damaged, and fetched anew" in caplog.text) == (harm is not with_half_a_note)


def test_verifies_local_files_where_they_are(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(BODY)
    (file,) = listed([str(path)], None)
    assert fetched(file, SHA256) == (path, SHA256)
    with pytest.raises(SourceError, match="wrong checksum"):
        fetched(file, "0" * 64)
    assert path.exists()


def test_names_a_local_file_that_cannot_be_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(BODY)
    (file,) = listed([str(path)], None)
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.csv: cannot be read: no such file"):
        fetched(file, None)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_globs_local_files_by_name(tmp_path, scheme):
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "d.csv").mkdir()
    found = listed([f"{scheme}{tmp_path}/*.csv", f"{tmp_path}/a.csv"], None)
    assert [file.name for file in found] == ["a.csv", "b.csv"]


def test_takes_a_path_with_brackets_by_its_name(tmp_path):
    path = tmp_path / "[1].csv"
    path.write_text("x")
    assert listed([str(path)], None)[0].path == str(path)


def test_fetches_from_any_file_system():
    fsspec.filesystem("memory").pipe("/logs/1.csv", b"one")
    fsspec.filesystem("memory").pipe("/logs/2.csv", b"two")
    found = listed(["memory://logs/*.csv"], None)
    assert [fetched(file, None)[0].read_bytes() for file in found] == [b"one", b"two"]


def test_tells_what_to_do_by_hand(serve, tmp_path):
    served = serve()
    with pytest.raises(SourceError, match=r"nothing\.csv: cannot be read: .*404.* Ask the shop\."):
        listed([served.url("nothing.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match=r"\*\.csv: no file matches\. Ask the shop\."):
        listed([str(tmp_path / "*.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match=r"no such file\. Ask the shop\."):
        listed([str(tmp_path / "one.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match="it is a folder"):
        listed([str(tmp_path)], None)
    with pytest.raises(SourceError, match="nosuch://x: cannot be read"):
        listed(["nosuch://x"], None)
    with pytest.raises(SourceError, match="cannot be read"):
        listed(["http://127.0.0.1:9/closed.csv"], None)


def test_keeps_secrets_out_of_messages_and_records(serve, tmp_path):
    served = serve()
    url = served.url("{}?token=SECRET", user="me:SECRET@")
    with pytest.raises(SourceError) as missing:
        listed([url.format("nothing.csv")], None)
    (file,) = listed([url.format("log.csv.gz")], None)
    with pytest.raises(SourceError) as wrong:
        fetched(file, "0" * 64)
    fetched(file, None)
    state = next(tmp_path.glob("root/.dayahead/downloads/*/.state.json")).read_text()
    for text in (str(missing.value), str(wrong.value), file.recorded, file.name, state):
        assert "SECRET" not in text
    assert file.recorded == served.url("log.csv.gz?***", user="***@")


def test_secrets_of_an_address_reach_no_file_and_no_line(serve, tmp_path, caplog):
    """Neither the manifest nor the store, whose folders are named after the address."""
    served = serve()
    served.files["log.csv"] = LOG
    url = served.url("log.csv?token=SECRET", user="me:SECRET@")
    with caplog.at_level(logging.INFO):
        download(a_dataset(source={"urls": [url]}), "mine", tmp_path / "raw")
    assert "log.csv?***" in (tmp_path / "raw" / "manifest.json").read_text()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"SECRET" in path.read_bytes() or "SECRET" in str(path)] == []
    assert "SECRET" not in caplog.text
    assert "fetching" in caplog.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/..%2f..%2fetc", "%2f..%2fetc"),
        ("a/%2e%2e", "%2e%2e"),
        ("a/..", "download"),
        (".sha256", "sha256"),
        (".state.json", "state.json"),
        ("a/" + "x" * 300 + ".csv", "x" * 196 + ".csv"),
        ("a/b\\..\\c.csv", "b\\..\\c.csv"),
    ],
)
def test_no_address_names_a_file_outside_its_place_in_the_store(path, name):
    fs, _ = fsspec.core.url_to_fs("http://host/log.csv")
    assert SourceFile(f"http://host/{path}", fs, f"http://host/{path}", 1, "").name == name


@pytest.mark.parametrize("path", ["a/..%2F..%2Fetc", ".sha256", ".state.json", "log.csv.gz"])
def test_what_is_fetched_lies_in_its_slot_whatever_it_is_called(serve, tmp_path, path):
    served = serve(twist=lambda answer: answer.headers.update({"Content-Disposition": EVIL}))
    served.files[path] = BODY
    for _ in range(2):
        assert fetch(served.url(path)) == BODY
    store = tmp_path / "root/.dayahead/downloads"
    (slot,) = (found for found in store.iterdir() if found.is_dir())
    files = {found for found in tmp_path.rglob("*") if found.is_file()}
    assert {found.parent for found in files} == {store, slot}
    assert len(served.asked) == 13


def test_records_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.csv").write_text("x")
    assert listed(["logs/a.csv"], None)[0].recorded == "logs/a.csv"
    monkeypatch.chdir(tmp_path / "logs")
    (tmp_path / "b.csv").write_text("x")
    assert listed(["../b.csv"], None)[0].recorded == "b.csv"
