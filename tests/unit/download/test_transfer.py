"""Transfer: every byte once, whatever the server does, even after a kill."""

import itertools
import signal
import subprocess
import sys
import threading
import time

import pytest

from dayahead.core.errors import SourceError
from dayahead.download import servers, transfer
from support.fetches import BODY, SHA256, STARTS, cut_at_random, fetch, of_gets, starts_asked
from support.sources import Answer


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


FETCH = """
import sys
from dayahead.download import sources as fetching
from dayahead.download import transfer
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
