"""Servers that fail: which are asked again, when, and how often."""

import threading
import time
from types import SimpleNamespace

import aiohttp
import pytest
from yarl import URL

from dayahead.core.errors import SourceError
from dayahead.download import servers, transfer
from support.fetches import BODY, SHA256, answering, fetch, of_gets, starts_asked
from support.sources import Answer


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


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//"])
def test_goes_nowhere_but_to_other_web_pages(serve, target):
    def redirect(answer: Answer) -> None:
        answer.status, answer.body = 302, b""
        answer.headers = {"Location": target, "Content-Length": "0"}

    served = serve(twist=redirect)
    with pytest.raises(SourceError, match="cannot be read"):
        fetch(served.url("log.csv.gz"))


@pytest.mark.parametrize(
    ("hops", "is_refused"),
    [
        (["https", "http"], True),
        (["http", "https", "http"], True),
        (["http", "https"], False),
        (["http", "http"], False),
        (["https"], False),
    ],
)
def test_takes_nothing_that_https_sends_for_without_encryption(hops, is_refused):
    *history, last = (SimpleNamespace(url=URL(f"{scheme}://host/x"), ok=False) for scheme in hops)
    last.history, last.status, last.headers = history, 200, {}
    last.request_info = SimpleNamespace(headers={})
    check = servers.HTTP["client_kwargs"]["raise_for_status"](last)
    if is_refused:
        with pytest.raises(ValueError, match="from https to http"):
            check.send(None)
    else:
        with pytest.raises(StopIteration):
            check.send(None)


def test_a_proxy_that_is_away_is_told_without_its_password(serve, monkeypatch):
    monkeypatch.setattr(servers, "ATTEMPTS", 1)
    monkeypatch.setenv("http_proxy", "http://me:SECRET@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY")
    with pytest.raises(SourceError, match="cannot be read") as away:
        fetch("http://example.invalid/log.csv.gz")
    assert "SECRET" not in str(away.value)
