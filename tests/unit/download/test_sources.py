"""Sources: listing, caching, verification, changes, disk space, and messages without secrets."""

import logging
import shutil

import fsspec
import pytest

from dayahead.core.errors import ConfigError, DataError, SourceError
from dayahead.download import sources, transfer
from dayahead.download.sources import SourceFile, fetch, list_files
from dayahead.download.stage import download
from support.fetches import BODY, SHA256, fetch_bytes, on_get
from support.sources import Response, a_dataset

LOG = b"session,item,time\ns,1,2024-01-01 10:00:00\ns,2,2024-01-01 10:01:00\n"
EVIL = "attachment; filename=../../evil.csv"


@pytest.fixture
def entries(tmp_path):
    """Folders in the cache of downloads, unfinished and damaged ones included."""
    folder = tmp_path / "root/.dayahead/downloads"
    return lambda: [path for path in folder.iterdir() if path.name != "locks"]


def test_a_file_is_fetched_once(serve, entries):
    served = serve()
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    n_requests = len(served.requests)
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert len(served.requests) == n_requests
    (entry,) = entries()
    assert [path.name for path in entry.glob("*/log*")] == ["log.csv.gz"]


@pytest.mark.parametrize("change", ["etag", "size"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_new_version_replaces_the_old_one(serve, monkeypatch, entries, change, is_whole):
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    served = serve(drops_after=[] if is_whole else [9999, 9999, 100])
    if is_whole:
        fetch_bytes(served.url("log.csv.gz"))
    else:
        with pytest.raises(SourceError):
            fetch_bytes(served.url("log.csv.gz"))
        served.drops_after = []
    (old,) = entries()
    new = BODY[::-1] if change == "etag" else b"x" + BODY
    served.files["log.csv.gz"] = new
    served.etag = '"2"' if change == "etag" else served.etag
    assert fetch_bytes(served.url("log.csv.gz")) == new
    assert len(entries()) == 1
    assert entries() != [old]


def test_a_file_without_size_and_version_is_fetched_on_each_run(serve, entries):
    def hide(response: Response) -> None:
        response.headers |= {"ETag": None, "Content-Length": None, "Connection": "close"}

    served = serve(change=hide, has_ranges=False)
    for body in (BODY, BODY[::-1]):
        served.files["log.csv.gz"] = body
        assert fetch_bytes(served.url("log.csv.gz")) == body
    assert len(entries()) == 1


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_a_change_during_the_download_is_an_error(serve, sha256):
    served = serve()

    def change(response: Response) -> None:
        if response.start == 5 * 8192:
            served.files["log.csv.gz"], served.etag = BODY[::-1], '"2"'

    served.change = on_get(change)
    message = "changed on the server during" if sha256 is None else "wrong checksum"
    with pytest.raises(SourceError, match=message):
        fetch_bytes(served.url("log.csv.gz"), sha256)
    assert fetch_bytes(served.url("log.csv.gz")) == BODY[::-1]


def test_space_is_required_for_all_that_is_missing(serve, monkeypatch):
    served = serve(drops_after=[8192] * 6 + [100] * 40)
    served.files["other.csv"] = BODY[:50_000]
    files = list_files([served.url("log.csv.gz"), served.url("other.csv")], None)
    needed: list[int] = []
    monkeypatch.setattr(sources, "require_space", lambda _, n_bytes, what: needed.append(n_bytes))
    sources.require_space_for(files)
    with pytest.raises(SourceError):
        fetch(files[0], None)
    sources.require_space_for(files[:1])
    served.drops_after.clear()
    fetch(files[1], None)
    sources.require_space_for(files)
    sources.require_space_for(files[1:])
    assert needed[:2] == [152_400, 102_400]
    partial = needed[2]
    assert 102_400 - 7 * 8192 - 4096 <= partial < 102_400
    assert needed[3:] == [50_000, partial, 0]


def test_a_full_disk_is_detected_before_anything_is_written(serve, monkeypatch):
    served = serve()
    full = shutil.disk_usage("/")._replace(free=102_399)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(
        DataError, match=r"downloads: not enough space: fetching 1 files? needs 0\.1"
    ):
        fetch_bytes(served.url("log.csv.gz"))
    assert served.requests == []


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_wrong_checksum_is_an_error_and_leaves_nothing_in_the_cache(serve, entries, is_cached):
    served = serve()
    if is_cached:
        fetch_bytes(served.url("log.csv.gz"))
    with pytest.raises(SourceError, match=f"expected sha256 {'0' * 64}, found {SHA256}"):
        fetch_bytes(served.url("log.csv.gz"), "0" * 64)
    assert entries() == []
    n_requests = len(served.requests)
    assert fetch_bytes(served.url("log.csv.gz"), SHA256.upper()) == BODY
    assert len(served.requests) > n_requests


def flip_bit(entry):
    path = entry / "content/log.csv.gz"
    path.write_bytes(BODY[:500] + bytes([BODY[500] ^ 1]) + BODY[501:])


def truncate(entry):
    (entry / "content/log.csv.gz").write_bytes(BODY[:500])


@pytest.mark.parametrize("sha256", [None, SHA256])
@pytest.mark.parametrize("damage", [flip_bit, truncate])
def test_a_damaged_copy_is_set_aside_and_fetched_again(serve, entries, caplog, sha256, damage):
    served = serve()
    assert fetch_bytes(served.url("log.csv.gz"), sha256) == BODY
    n_requests = len(served.requests)
    (entry,) = entries()
    damage(entry)
    assert fetch_bytes(served.url("log.csv.gz"), sha256) == BODY
    assert len(served.requests) > n_requests
    assert "damaged (content/log.csv.gz), set aside" in caplog.text
    assert sorted(entries()) == [entry, entry.with_name(f"{entry.name}.damaged")]


def test_local_files_are_verified_and_not_copied(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(BODY)
    (file,) = list_files([str(path)], None)
    source = fetch(file, SHA256)
    assert (source.path, source.sha256, source.bytes) == (path, SHA256, len(BODY))
    with pytest.raises(SourceError, match="wrong checksum"):
        fetch(file, "0" * 64)
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.csv: cannot be read: no such file"):
        fetch(file, None)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_globs_match_local_files_in_order_of_name(tmp_path, scheme):
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "d.csv").mkdir()
    found = list_files([f"{scheme}{tmp_path}/*.csv", f"{tmp_path}/a.csv"], None)
    assert [file.name for file in found] == ["a.csv", "b.csv"]


def test_an_existing_path_with_brackets_is_no_glob(tmp_path):
    path = tmp_path / "[1].csv"
    path.write_text("x")
    assert list_files([str(path)], None)[0].path == str(path)


def test_any_file_system_of_fsspec():
    fsspec.filesystem("memory").pipe("/logs/1.csv", b"one")
    fsspec.filesystem("memory").pipe("/logs/2.csv", b"two")
    found = list_files(["memory://logs/*.csv"], None)
    assert [fetch(file, None).path.read_bytes() for file in found] == [b"one", b"two"]


def test_errors_end_with_what_to_do_by_hand(serve, tmp_path):
    served = serve()
    with pytest.raises(SourceError, match=r"nothing\.csv: cannot be read: .*404.* Ask the shop\."):
        list_files([served.url("nothing.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match=r"\*\.csv: no file matches\. Ask the shop\."):
        list_files([str(tmp_path / "*.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match=r"no such file\. Ask the shop\."):
        list_files([str(tmp_path / "one.csv")], "Ask the shop.")
    with pytest.raises(SourceError, match="it is a folder"):
        list_files([str(tmp_path)], None)
    with pytest.raises(SourceError, match="nosuch://x: cannot be read"):
        list_files(["nosuch://x"], None)
    with pytest.raises(SourceError, match="cannot be read"):
        list_files(["http://127.0.0.1:9/closed.csv"], None)


def test_messages_hold_no_secrets(serve):
    served = serve()
    url = served.url("{}?token=SECRET", user="me:SECRET@")
    with pytest.raises(SourceError) as missing:
        list_files([url.format("nothing.csv")], None)
    (file,) = list_files([url.format("log.csv.gz")], None)
    with pytest.raises(SourceError) as wrong:
        fetch(file, "0" * 64)
    for text in (str(missing.value), str(wrong.value), file.recorded, file.name):
        assert "SECRET" not in text
    assert file.recorded == served.url("log.csv.gz?***", user="***@")


FETCHED = [
    "http://me:SECRET@{}/log.csv",
    "http://me:SECRET@{}/log.csv?token=SECRET",
    "http://SECRET@{}/log.csv;token=SECRET",
    "http://{}/log.csv#token=SECRET",
    "http://{}/log.csv?a=b#token=SECRET",
    "http://{}/log.csv;token=SECRET?a=b",
    "http://me:SECRET%20SECRET@{}/log.csv?token=SEC%20SECRET%22SECRET",
    "http://me:a@SECRET@{}/log.csv",
    "simplecache::http://me:SECRET@{}/log.csv?token=SECRET",
]
REFUSED = [
    "http://{}/log.csv?a=' SECRET'",
    "http://{}/log.csv?a='SECRET'",
    'http://{}/log.csv?a="SECRET"',
    "http://{}/log.csv?a=b SECRET",
    "http://{}/log.csv?a=b\nSECRET",
    "http://{}/log.csv?a=b\tSECRET",
    "http://{}/log.csv?a=b\u00a0SECRET",
    "http://{}/log.csv?a=<SECRET>",
    "http://{}/log.csv?a=b\x01SECRET",
    " http://me:SECRET@{}/log.csv",
    "http://me:a SECRET b@{}/log.csv",
    "http://me:'SECRET'SECRET@{}/log.csv",
    "http://me:SEC/SECRET@{}/log.csv",
    "http://me:SECRET/SEC@{}/log.csv",
    "http://me:SECRET?SECRET@{}/log.csv",
    "http://me:SECRET#SECRET@{}/log.csv",
    "http://me:SECRET;SECRET@{}/log.csv",
    "http://SECRET:80/SECRET@{}/log.csv",
    "http://SECRET?SECRET@{}/log.csv",
    "http://SECRET#SECRET@{}/log.csv",
    "http://[SECRET@{}/log.csv",
    "s3://key:SECRET/SECRET@bucket/log.csv",
    "zip://log.csv::http://me:SECRET/SECRET@{}/log.zip",
]


@pytest.mark.parametrize("form", [*FETCHED, *REFUSED])
def test_odd_urls_give_no_secret_away(serve, tmp_path, caplog, form):
    """Neither in messages nor in the manifest nor in the cache, whose folders a hash names."""
    served = serve()
    served.files |= dict.fromkeys(["log.csv", "log.csv;token=SECRET"], LOG)
    dataset = a_dataset(source={"urls": [form.format(f"127.0.0.1:{served.port}")]})
    message = ""
    try:
        with caplog.at_level(logging.INFO):
            download(dataset, "mine", tmp_path / "raw")
    except SourceError as error:
        message = str(error)
    assert ("not a URL" in message and "percent-encode" in message) == (form in REFUSED), message
    assert message == "" or form in REFUSED
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert form in REFUSED or len(files) > 5
    assert [path for path in files if b"SECRET" in path.read_bytes() or "SECRET" in str(path)] == []
    assert "SECRET" not in message + caplog.text


def test_a_url_of_the_wrong_type_gives_no_secret_away():
    with pytest.raises(ConfigError, match=r"source\.urls") as caught:
        a_dataset(source={"urls": "https://host/log.csv?token=a SECRET"})
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/..%2f..%2fetc", "%2f..%2fetc"),
        ("a/%2e%2e", "%2e%2e"),
        ("a/..", "download"),
        (".done-16777216", "done-16777216"),
        ("a/" + "x" * 300 + ".csv", "x" * 196 + ".csv"),
        ("a/b\\..\\c.csv", "b\\..\\c.csv"),
        ("a/" + "\u65e5" * 100 + ".csv", "\u65e5" * 65 + ".csv"),
        ("a/b.csv;token=x", "b.csv"),
    ],
)
def test_no_url_names_a_file_outside_its_cache_entry(path, name):
    fs, _ = fsspec.core.url_to_fs("http://host/log.csv")
    assert SourceFile(f"http://host/{path}", fs, f"http://host/{path}", 1, "").name == name


@pytest.mark.parametrize("path", ["a/..%2F..%2Fetc", ".done-8192", "contents.json", "log.csv.gz"])
def test_a_fetched_file_is_in_its_cache_entry_whatever_its_name(serve, tmp_path, entries, path):
    served = serve(change=lambda response: response.headers.update({"Content-Disposition": EVIL}))
    served.files[path] = BODY
    for _ in range(2):
        assert fetch_bytes(served.url(path)) == BODY
    (entry,) = entries()
    files = {found for found in tmp_path.rglob("*") if found.is_file()}
    assert {found.parent for found in files} == {entry.parent / "locks", entry, entry / "content"}
    assert len(served.requests) == 13


def test_the_manifest_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.csv").write_text("x")
    assert list_files(["logs/a.csv"], None)[0].recorded == "logs/a.csv"
    monkeypatch.chdir(tmp_path / "logs")
    (tmp_path / "b.csv").write_text("x")
    assert list_files(["../b.csv"], None)[0].recorded == "b.csv"
