"""Transfer: every byte is fetched once, whatever the server does, even after a kill."""

import itertools
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import aiohttp
import pytest
from yarl import URL

from dayahead.core.errors import SourceError
from dayahead.download import transfer
from support.fetches import (
    BODY,
    SHA256,
    STARTS,
    cut_at_random,
    fail_with,
    fetch_bytes,
    on_get,
    segment_starts,
)
from support.sources import Response
from support.waiting import wait_until


def test_segments_are_fetched_once_and_in_parallel(serve):
    held = threading.Barrier(transfer.THREADS, timeout=60)
    n_held = itertools.count()

    def wait_for_the_others(_: Response) -> None:
        if next(n_held) < transfer.THREADS:
            held.wait()

    served = serve(change=on_get(wait_for_the_others))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert segment_starts(served) == sorted(STARTS)
    assert not held.broken


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 16384])
def test_any_size(serve, size):
    served = serve()
    served.files["log.csv.gz"] = BODY[:size]
    assert fetch_bytes(served.url("log.csv.gz")) == BODY[:size]
    assert len(served.requests) == max(1, -(-size // 8192))


@pytest.mark.parametrize("seed", range(2))
def test_broken_connections_are_retried(serve, monkeypatch, seed):
    monkeypatch.setattr(transfer, "ATTEMPTS", 50)
    served = serve(change=cut_at_random(seed, 0.6))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert set(segment_starts(served)) == STARTS
    assert len(served.requests) > len(STARTS)


def test_the_next_run_resumes(serve, monkeypatch):
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(drops_after=[9999, 9999, 100])
    with pytest.raises(SourceError, match=r"cannot be fetched: .*\. Run again to fetch"):
        fetch_bytes(served.url("log.csv.gz"))
    done = {0, 8192} | set(segment_starts(served)[3:])
    served.requests.clear()
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert set(segment_starts(served)) == STARTS - done


@pytest.mark.parametrize("announces", [True, False])
def test_servers_without_range_requests(serve, announces):
    served = serve(has_ranges=False, announces_no_ranges=announces)
    assert fetch_bytes(served.url("log.csv.gz")) == BODY
    served.files["log.csv.gz"] = BODY + b"more"
    served.change = cut_at_random(5, 0.5)
    assert fetch_bytes(served.url("log.csv.gz")) == BODY + b"more"


def test_a_server_may_stop_supporting_range_requests(serve, monkeypatch):
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    served = serve(drops_after=[9999, 9999, 100])
    with pytest.raises(SourceError):
        fetch_bytes(served.url("log.csv.gz"))
    served.has_ranges, served.drops_after = False, []
    served.change = cut_at_random(1, 1.0)
    with pytest.raises(SourceError, match="cannot be fetched"):
        fetch_bytes(served.url("log.csv.gz"))
    served.has_ranges, served.change = True, None
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY


@pytest.mark.parametrize("is_in_header", [True, False])
def test_wrong_ranges_are_detected(serve, is_in_header):
    """By the server's own header, or by the checksum."""
    served = serve()

    def shift(response: Response) -> None:
        if response.start:
            response.body = BODY[response.start - 1 :][: len(response.body)]
            if is_in_header:
                end = response.start + len(response.body) - 2
                response.headers["Content-Range"] = f"bytes {response.start - 1}-{end}/{len(BODY)}"

    served.change = on_get(shift)
    if is_in_header:
        assert fetch_bytes(served.url("log.csv.gz")) == BODY
        assert served.requests[-1][1] is None  # read whole
    else:
        with pytest.raises(SourceError, match="wrong checksum"):
            fetch_bytes(served.url("log.csv.gz"), SHA256)


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("lie", [-1, 9000])
def test_a_file_of_another_size_than_announced_is_an_error(serve, has_ranges, lie):
    def add(response: Response) -> None:
        if response.command == "HEAD":
            response.headers["Content-Length"] = str(len(BODY) + lie)

    served = serve(change=add, has_ranges=has_ranges)
    with pytest.raises(SourceError, match=r"cannot be fetched: (got \d+ bytes instead|.* 416)"):
        fetch_bytes(served.url("log.csv.gz"))
    served.change = None
    assert fetch_bytes(served.url("log.csv.gz")) == BODY


@pytest.mark.long
@pytest.mark.parametrize("lie", [-1, 1])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_response_of_another_size_than_announced_is_an_error(serve, has_ranges, lie):
    def add(response: Response) -> None:
        response.headers["Content-Length"] = str(len(response.body) + lie)

    served = serve(change=on_get(add), has_ranges=has_ranges)
    with pytest.raises(SourceError, match="cannot be fetched"):
        fetch_bytes(served.url("log.csv.gz"), SHA256)


FETCH = """
import sys
from dayahead.download import sources, transfer
transfer.SEGMENT = 8192
sources.fetch(sources.list_files([sys.argv[1]], None)[0], None)
"""


@pytest.mark.long
def test_a_killed_transfer_resumes(serve, tmp_path):
    n_answered = itertools.count(1)
    is_over = threading.Event()
    served = serve(change=on_get(lambda _: next(n_answered) > 7 and is_over.wait(300)))
    process = subprocess.Popen([sys.executable, "-c", FETCH, served.url("log.csv.gz")])

    def done_segments():
        bitmaps = (tmp_path / "root/.dayahead/downloads").glob(".*.partial/*/.done-8192")
        return [8192 * n for path in bitmaps for n, bit in enumerate(path.read_bytes()) if bit]

    # Every thread waits for an answer: no request is still to come.
    n_sent = 7 + transfer.THREADS
    wait_until(lambda: len(done_segments()) == 7 and len(served.requests) == n_sent, 200)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    is_over.set()
    done = set(done_segments())
    assert len(done) == 7
    served.requests.clear()
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert segment_starts(served) == sorted(STARTS - done)


@pytest.mark.parametrize("status", [408, 429, 503])
@pytest.mark.parametrize("when", ["listing", "fetching"])
def test_temporary_failures_are_retried(serve, status, when):
    change = fail_with(status, 4)
    served = serve(change=change if when == "listing" else on_get(change))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("when", ["listing", "fetching"])
def test_permanent_failures_are_not_retried(serve, monkeypatch, status, when):
    monkeypatch.setattr(transfer, "PAUSE", 1e6)
    change = fail_with(status, 1000)
    served = serve(change=change if when == "listing" else on_get(change))
    with pytest.raises(SourceError, match=f"the server returned {status}|no such file"):
        fetch_bytes(served.url("log.csv.gz"))
    assert len(served.requests) == len(set(served.requests))


def test_retries_are_limited(serve, monkeypatch):
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(change=on_get(fail_with(503, 1000)))
    with pytest.raises(SourceError, match=r"the server returned 503 "):
        fetch_bytes(served.url("log.csv.gz"))
    assert segment_starts(served)[:5] == [0] * 5


def test_pauses_double_or_are_as_long_as_the_server_demands(serve, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(transfer, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(transfer, "PAUSE", 1.0)
    monkeypatch.setattr(transfer, "THREADS", 1)
    served = serve(change=on_get(fail_with(503, 4)))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert [0.5 <= pause / 2**n <= 1.5 for n, pause in enumerate(pauses)] == [True] * 4
    pauses.clear()
    served.etag = '"2"'
    served.change = on_get(fail_with(429, 1, **{"Retry-After": "17"}))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    assert pauses == [17]


def test_a_stalled_connection_times_out_and_is_retried(serve, monkeypatch):
    monkeypatch.setattr(transfer, "ATTEMPTS", 50)  # a slow machine misses the timeout, too
    timeout = aiohttp.ClientTimeout(sock_read=0.2)
    monkeypatch.setitem(transfer.HTTP["client_kwargs"], "timeout", timeout)
    awake = threading.Event()
    asleep = [None] * 2

    def stall(response: Response) -> None:
        if asleep:
            asleep.pop()
            awake.wait(60)
        elif response.start == 0:
            time.sleep(0.1)  # slow, but within the timeout

    served = serve(change=on_get(stall))
    assert fetch_bytes(served.url("log.csv.gz"), SHA256) == BODY
    awake.set()


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//"])
def test_redirects_lead_only_to_http(serve, target):
    def redirect(response: Response) -> None:
        response.status, response.body = 302, b""
        response.headers = {"Location": target, "Content-Length": "0"}

    served = serve(change=redirect)
    with pytest.raises(SourceError, match="cannot be read"):
        fetch_bytes(served.url("log.csv.gz"))


@pytest.mark.parametrize(
    ("hops", "is_rejected"),
    [
        (["https", "http"], True),
        (["http", "https", "http"], True),
        (["http", "https"], False),
        (["http", "http"], False),
        (["https"], False),
    ],
)
def test_redirects_from_https_to_http_are_rejected(hops, is_rejected):
    *history, last = (SimpleNamespace(url=URL(f"{scheme}://host/x"), ok=False) for scheme in hops)
    last.history, last.status, last.headers = history, 200, {}
    last.request_info = SimpleNamespace(headers={})
    check = transfer.HTTP["client_kwargs"]["raise_for_status"](last)
    if is_rejected:
        with pytest.raises(ValueError, match="from https to http"):
            check.send(None)
    else:
        with pytest.raises(StopIteration):
            check.send(None)


def test_the_password_of_an_unreachable_proxy_is_not_shown(serve, monkeypatch):
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    monkeypatch.setenv("http_proxy", "http://me:SECRET@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY")
    with pytest.raises(SourceError, match="cannot be read") as unreachable:
        fetch_bytes("http://example.invalid/log.csv.gz")
    assert "SECRET" not in str(unreachable.value)
