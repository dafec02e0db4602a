"""Fetching: resume, verification, globs, servers that lie, and messages without secrets."""

import hashlib
import itertools
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import fsspec
import pytest

from dayahead.data import fetching, servers, transfer
from dayahead.data.fetching import fetched, listed
from dayahead.errors import DataError, SourceError
from sources import Answer, Served, serving

BODY = random.Random(1).randbytes(102_400)  # thirteen segments of 8,192, the last of half that
STARTS = set(range(0, len(BODY), 8192))
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer, "SEGMENT", 8192)
    monkeypatch.setattr(transfer, "CHUNK", 8192)
    monkeypatch.setattr(servers, "PAUSE", 0.0)


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


def starts_asked(served: Served) -> list[int]:
    return sorted(int(asked[len("bytes=") :].split("-")[0]) for _, asked in served.asked if asked)


def of_gets(change: Callable[[Answer], None]) -> Callable[[Answer], None]:
    return lambda answer: change(answer) if answer.command == "GET" else None


def cut_at_random(seed: int, share: float) -> Callable[[Answer], None]:
    """Break off that share of the answers anywhere."""
    dice = random.Random(seed)

    def cut(answer: Answer) -> None:
        if dice.random() < share:
            answer.body = answer.body[: dice.randrange(len(answer.body))]

    return of_gets(cut)


def answering(status: int, times: float, **headers: str) -> Callable[[Answer], None]:
    """Answer the first requests with an error."""
    left = [None] * int(times)

    def fail(answer: Answer) -> None:
        if left:
            left.pop()
            answer.status, answer.body = status, b"sorry"
            answer.headers = {"Content-Length": "5", **headers}

    return fail


def test_fetches_each_byte_once_several_at_a_time(serve):
    held = threading.Barrier(transfer.THREADS, timeout=10)
    n_held = itertools.count()

    def wait_for_the_others(_: Answer) -> None:
        if next(n_held) < transfer.THREADS:
            held.wait()

    served = serve(twist=of_gets(wait_for_the_others))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert starts_asked(served) == sorted(STARTS)
    assert not held.broken


@pytest.mark.parametrize("size", [1, 8191, 8192, 8193, 16384])
def test_fetches_any_size(serve, size):
    served = serve()
    served.files["log.csv.gz"] = BODY[:size]
    assert fetch(served.url("log.csv.gz")) == BODY[:size]
    assert len(served.asked) == -(-size // 8192)


def test_fetches_an_empty_file(serve):
    served = serve()
    served.files["log.csv.gz"] = b""
    assert fetch(served.url("log.csv.gz")) == b""


@pytest.mark.parametrize("seed", range(3))
def test_goes_on_where_connections_break(serve, monkeypatch, seed):
    monkeypatch.setattr(servers, "ATTEMPTS", 50)
    served = serve(twist=cut_at_random(seed, 0.6))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert set(starts_asked(served)) == STARTS
    assert len(served.asked) > len(STARTS)


def test_goes_on_in_the_next_run(serve, monkeypatch):
    monkeypatch.setattr(servers, "ATTEMPTS", 1)
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(drops_after=[9999, 9999, 100])
    with pytest.raises(SourceError, match=r"cannot be fetched: .*\. Run again to fetch"):
        fetch(served.url("log.csv.gz"))
    done = {0, 8192} | set(starts_asked(served)[3:])
    served.asked.clear()
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert set(starts_asked(served)) == STARTS - done


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


@pytest.mark.parametrize("admits", [True, False])
def test_reads_servers_without_ranges(serve, admits):
    served = serve(knows_ranges=False, admits_no_ranges=admits)
    assert fetch(served.url("log.csv.gz")) == BODY
    served.files["log.csv.gz"] = BODY + b"more"
    served.twist = cut_at_random(5, 0.5)
    assert fetch(served.url("log.csv.gz")) == BODY + b"more"


def test_reads_servers_that_stop_to_know_ranges(serve, monkeypatch):
    monkeypatch.setattr(servers, "ATTEMPTS", 1)
    served = serve(drops_after=[9999, 9999, 100])
    with pytest.raises(SourceError):
        fetch(served.url("log.csv.gz"))
    served.knows_ranges, served.drops_after = False, []
    served.twist = cut_at_random(1, 1.0)
    with pytest.raises(SourceError, match="cannot be fetched"):
        fetch(served.url("log.csv.gz"))
    served.knows_ranges, served.twist = True, None
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY


@pytest.mark.parametrize("is_told", [True, False])
def test_trusts_no_ranges_from_the_wrong_place(serve, is_told):
    """The bytes are of another place; a checksum or the server's own header betrays it."""
    served = serve()

    def shift(answer: Answer) -> None:
        if answer.start:
            answer.body = BODY[answer.start - 1 :][: len(answer.body)]
            if is_told:
                end = answer.start + len(answer.body) - 2
                answer.headers["Content-Range"] = f"bytes {answer.start - 1}-{end}/{len(BODY)}"

    served.twist = of_gets(shift)
    if is_told:
        assert fetch(served.url("log.csv.gz")) == BODY
        assert served.asked[-1][1] is None  # read whole
    else:
        with pytest.raises(SourceError, match="wrong checksum"):
            fetch(served.url("log.csv.gz"), SHA256)


@pytest.mark.parametrize("knows_ranges", [True, False])
@pytest.mark.parametrize("lie", [-9000, -1, 1, 9000])
def test_refuses_a_file_that_is_not_as_long_as_told(serve, knows_ranges, lie):
    def add(answer: Answer) -> None:
        if answer.command == "HEAD":
            answer.headers["Content-Length"] = str(len(BODY) + lie)

    served = serve(twist=add, knows_ranges=knows_ranges)
    with pytest.raises(SourceError, match=r"cannot be fetched: (\d+ bytes came instead|.* 416)"):
        fetch(served.url("log.csv.gz"))
    served.twist = None
    assert fetch(served.url("log.csv.gz")) == BODY


@pytest.mark.parametrize("lie", [-1, 1])
@pytest.mark.parametrize("knows_ranges", [True, False])
def test_refuses_answers_that_are_not_as_long_as_told(serve, knows_ranges, lie):
    def add(answer: Answer) -> None:
        answer.headers["Content-Length"] = str(len(answer.body) + lie)

    served = serve(twist=of_gets(add), knows_ranges=knows_ranges)
    with pytest.raises(SourceError, match="cannot be fetched"):
        fetch(served.url("log.csv.gz"), SHA256)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.parametrize("when", ["listing", "fetching"])
def test_asks_again_where_that_may_help(serve, status, when):
    twist = answering(status, 4)
    served = serve(twist=twist if when == "listing" else of_gets(twist))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY


@pytest.mark.parametrize("status", [401, 403, 404, 410])
@pytest.mark.parametrize("when", ["listing", "fetching"])
def test_gives_up_at_once_where_nothing_helps(serve, monkeypatch, status, when):
    monkeypatch.setattr(servers, "PAUSE", 1e6)
    monkeypatch.setattr(transfer, "THREADS", 1)
    twist = answering(status, 1000)
    served = serve(twist=twist if when == "listing" else of_gets(twist))
    with pytest.raises(SourceError, match=f"the server answers {status}|no such file"):
        fetch(served.url("log.csv.gz"))
    assert len(served.asked) <= 2


def test_gives_up_on_a_server_that_only_fails(serve, monkeypatch):
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(twist=of_gets(answering(503, 1000)))
    with pytest.raises(SourceError, match=r"the server answers 503 "):
        fetch(served.url("log.csv.gz"))
    assert starts_asked(served)[:5] == [0] * 5


def test_waits_longer_each_time_or_as_long_as_the_server_says(serve, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(servers, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(servers, "PAUSE", 1.0)
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(twist=of_gets(answering(503, 4)))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert [0.5 <= pause / 2**n <= 1.5 for n, pause in enumerate(pauses)] == [True] * 4
    pauses.clear()
    served.etag = '"2"'
    served.twist = of_gets(answering(429, 1, **{"Retry-After": "17"}))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert pauses == [17]


def test_asks_again_when_nothing_comes(serve, monkeypatch):
    patience = aiohttp.ClientTimeout(sock_read=0.2)
    monkeypatch.setitem(servers.HTTP["client_kwargs"], "timeout", patience)
    awake = threading.Event()
    asleep = [None] * 2

    def stall(answer: Answer) -> None:
        if asleep:
            asleep.pop()
            awake.wait(10)
        elif answer.start == 0:
            time.sleep(0.1)  # slow, but not too slow

    served = serve(twist=of_gets(stall))
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    awake.set()


FETCH = """
import sys
from dayahead.data import fetching, transfer
transfer.SEGMENT = 8192
fetching.fetched(fetching.listed([sys.argv[1]], None)[0], None)
"""


def test_fetches_only_the_rest_after_a_kill(serve, tmp_path):
    n_answered = itertools.count(1)
    is_over = threading.Event()
    served = serve(twist=of_gets(lambda _: next(n_answered) > 7 and is_over.wait(60)))
    process = subprocess.Popen([sys.executable, "-c", FETCH, served.url("log.csv.gz")])
    deadline = time.monotonic() + 60
    n_done = 0
    while n_done < 7 and time.monotonic() < deadline:
        time.sleep(0.02)
        marks = list((tmp_path / "root/.dayahead/downloads").glob("*/.done-8192"))
        n_done = marks[0].read_bytes().count(1) if marks else 0
    process.send_signal(signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    is_over.set()
    assert n_done == 7
    done = {8192 * n for n, mark in enumerate(marks[0].read_bytes()) if mark}
    served.asked.clear()
    assert fetch(served.url("log.csv.gz"), SHA256) == BODY
    assert starts_asked(served) == sorted(STARTS - done)


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


def test_records_no_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.csv").write_text("x")
    assert listed(["logs/a.csv"], None)[0].recorded == "logs/a.csv"
    monkeypatch.chdir(tmp_path / "logs")
    (tmp_path / "b.csv").write_text("x")
    assert listed(["../b.csv"], None)[0].recorded == "b.csv"
