"""Fetching: resume, verification, globs, and messages without secrets."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import fsspec
import pytest

from dayahead.data import fetching
from dayahead.data.fetching import fetched, listed
from dayahead.errors import SourceError
from sources import Served, serving

BODY = bytes(range(256)) * 400  # 102,400 bytes: thirteen chunks of 8,192
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetching, "CHUNK", 8192)
    monkeypatch.setattr(fetching, "PAUSE", 0.0)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            serving(Served({"log.csv.gz": BODY}, **options))
        )


def fetch(url: str, sha256: str | None = None) -> bytes:
    (file,) = listed([url], None)
    path, found = fetched(file, sha256)
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def test_fetches_once(serve, tmp_path):
    served = serve()
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    asked = len(served.asked)
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert len(served.asked) == asked
    kept = [p.name for p in (tmp_path / "root/.dayahead/downloads").glob("*/log*")]
    assert kept == ["log.csv.gz"]


def test_goes_on_where_the_connection_broke(serve):
    served = serve(drops_after=[8192, 100])
    assert fetch(served.url("log.csv.gz")) == BODY
    starts = [int(asked.removeprefix("bytes=").split("-")[0]) for _, asked in served.asked]
    assert starts.count(0) == 1
    assert starts == sorted(starts)


def test_goes_on_in_the_next_run(serve, monkeypatch):
    served = serve()
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    served.drops_after = [8192, 0, 0]
    with pytest.raises(SourceError, match=r"cut off at 8192 of 102400 bytes.*Run again to go on"):
        fetch(served.url("log.csv.gz"))
    served.drops_after, served.asked[:] = [], []
    assert fetch(served.url("log.csv.gz")) == BODY
    assert served.asked[0][1].startswith("bytes=8192-")


@pytest.mark.parametrize("change", ["etag", "size"])
def test_begins_anew_when_the_file_has_changed(serve, monkeypatch, change):
    served = serve()
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    served.drops_after = [8192, 0, 0]
    with pytest.raises(SourceError):
        fetch(served.url("log.csv.gz"))
    served.drops_after = []
    new = BODY[::-1] if change == "etag" else b"x" + BODY
    served.files["log.csv.gz"] = new
    served.etag = '"2"' if change == "etag" else served.etag
    assert fetch(served.url("log.csv.gz")) == new


@pytest.mark.parametrize("admits", [True, False])
def test_reads_servers_without_ranges(serve, admits):
    served = serve(knows_ranges=False, admits_no_ranges=admits)
    assert fetch(served.url("log.csv.gz")) == BODY
    served.files["log.csv.gz"] = BODY + b"more"
    served.drops_after = [50_000]
    assert fetch(served.url("log.csv.gz")) == BODY + b"more"


def test_gives_up_on_a_server_that_only_fails(serve):
    served = serve(drops_after=[0] * 50)
    with pytest.raises(SourceError, match="cut off at 0 of 102400 bytes, 5 times"):
        fetch(served.url("log.csv.gz"))


def test_refuses_a_wrong_checksum_and_fetches_anew(serve):
    served = serve()
    with pytest.raises(SourceError, match=f"expected sha256 {'0' * 64}, found {SHA256}"):
        fetch(served.url("log.csv.gz"), "0" * 64)
    asked = len(served.asked)
    assert fetch(served.url("log.csv.gz"), SHA256.upper()) == BODY
    assert len(served.asked) > asked


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


def test_keeps_secrets_out_of_messages_and_records(serve):
    served = serve()
    url = served.url("{}?token=SECRET", user="me:SECRET@")
    with pytest.raises(SourceError) as missing:
        listed([url.format("nothing.csv")], None)
    (file,) = listed([url.format("log.csv.gz")], None)
    with pytest.raises(SourceError) as wrong:
        fetched(file, "0" * 64)
    fetched(file, None)
    state = next(fetching.store().glob("*/.state.json")).read_text()
    for text in (str(missing.value), str(wrong.value), file.recorded, file.name, state):
        assert "SECRET" not in text
    assert file.recorded == served.url("log.csv.gz?***", user="***@")


def test_records_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.csv").write_text("x")
    assert listed(["logs/a.csv"], None)[0].recorded == "logs/a.csv"
    monkeypatch.chdir(tmp_path / "logs")
    (tmp_path / "b.csv").write_text("x")
    assert listed(["../b.csv"], None)[0].recorded == "b.csv"
