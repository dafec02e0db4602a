"""Servers that fail: which are asked again, when, and how often."""

import threading
import time
from types import SimpleNamespace

import aiohttp
import pytest

from dayahead.data import servers, transfer
from dayahead.errors import SourceError
from fetches import BODY, SHA256, answering, fetch, of_gets, starts_asked
from sources import Answer


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
