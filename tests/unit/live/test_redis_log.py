"""The log of events in a real Redis server: several services follow one stream."""

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from dayahead.core.errors import ConfigError, UnreachableError
from dayahead.live.clock import Clock, EventClock
from dayahead.live.event_log import Event
from support.event_logs import opened_logs
from support.redis_servers import running_redis

pytest.importorskip("redis")
from dayahead.live import redis_log
from dayahead.live.redis_log import RedisLog


def event(name, time=0):
    return Event(f"e{name}", f"s{name}", None, time, {"item_id": name, "price": 0.5})


@pytest.fixture
def server(tmp_path):
    with running_redis(tmp_path) as running:
        yield running


@pytest.fixture
def opened(server):
    """Open the log; what it delivers is in `delivered`."""

    def make(clock=None):
        return RedisLog(server[0], clock or EventClock())

    with opened_logs(make) as opened:
        yield opened


def without_places(events):
    return [each._replace(id="", position=0, arrived=0) for each in events]


def test_all_services_get_all_events_once_in_one_order(opened):
    one, other = opened(), opened()
    assert one.append([event(2, 20), event(1, 10)]) == [True, True]
    assert other.append([event(1, 11), event(3, 30)]) == [False, True]
    assert (one.complete_until(), other.complete_until()) == (30, 30)
    assert one.delivered == other.delivered
    expected = [event(2, 20), event(1, 10), event(3, 30)]
    assert without_places(one.delivered) == without_places(expected)
    assert [each.arrived for each in one.delivered] == [20, 20, 30]
    positions = [each.position for each in one.delivered]
    assert positions == sorted({*positions})
    assert [*opened().read(positions[0])] == one.delivered[1:]
    other.append([event(4, 40)])
    one.complete_until()
    assert len(one.delivered) == 4


def test_the_time_of_arrival_is_that_of_the_server(opened):
    log = opened(Clock())
    before = log.complete_until()
    log.append([event(1, 5)])
    after = log.complete_until()
    [found] = log.delivered
    assert before <= found.arrived <= after
    assert after > 1_700_000_000_000_000
    # No event arrives before a time that was said.
    times = []

    def settle():
        times.extend(log.complete_until() for _ in range(200))

    thread = threading.Thread(target=settle)
    thread.start()
    other = opened(Clock())
    for n in range(200):
        other.append([event(f"more {n}")])
    thread.join()
    log.complete_until()
    assert [each.arrived for each in log.delivered] == sorted(
        each.arrived for each in log.delivered
    )
    assert times == sorted(times)
    assert len(log.delivered) == 201


def test_more_is_read_than_at_once(opened, monkeypatch):
    monkeypatch.setattr("dayahead.live.redis_log.READ_AT_ONCE", 3)
    log = opened()
    log.append([event(n, n) for n in range(7)])
    log.complete_until()
    assert [each.time for each in log.delivered] == [*range(7)]


def test_old_events_are_removed_by_arrival(opened):
    log = opened(Clock())
    log.append([event(1)])
    until = log.complete_until() + 1000
    while log.complete_until() < until:
        pass
    log.append([event(2)])
    log.complete_until()
    assert log.prune(log.delivered[1].arrived) == 1
    assert [each.session for each in log.read()] == ["s2"]
    # Ids are kept as long as their events, and some of the second before.
    assert log.append([event(2)]) == [False]
    log.prune(log.complete_until() + 10_000_000)
    assert log.append([event(1), event(2)]) == [True, True]


def test_nothing_is_delivered_while_paused(opened):
    log = opened()
    log.append([event(1, 10)])
    with log.paused():
        thread = threading.Thread(target=log.complete_until)
        thread.start()
        thread.join(0.1)
        assert log.delivered == []
    thread.join()
    assert len(log.delivered) == 1


def test_a_server_that_dies_is_said_and_loses_nothing(tmp_path, caplog):
    with running_redis(tmp_path) as (url, server):
        log = RedisLog(url, EventClock())
        log.deliver = lambda _: None
        log.append([event(1, 10)])
        server.kill()
        server.wait()
        with pytest.raises(OSError, match=r"redis://127\.0\.0\.1"):
            log.append([event(2, 20)])
        with pytest.raises(OSError, match=r"redis://127\.0\.0\.1"):
            log.complete_until()
        log.close()
    with running_redis(tmp_path) as (url, _):
        log = RedisLog(url, EventClock())
        assert [each.session for each in log.read()] == ["s1"]
        assert log.append([event(1, 10)]) == [False]
        log.close()
    assert "may lose events" not in caplog.text


def test_a_server_that_may_lose_events_is_said(server, opened, caplog):
    log = opened()
    log._server.config_set("appendfsync", "everysec")
    opened()
    assert "the server may lose events that were acknowledged" in caplog.text


def test_a_server_that_does_not_answer_is_one_line_without_its_password():
    with pytest.raises(UnreachableError, match="does not answer") as raised:
        RedisLog("redis://user:hidden@127.0.0.1:1/0", EventClock())
    assert "hidden" not in str(raised.value)
    with pytest.raises(ConfigError, match="percent-encoded") as raised:
        RedisLog("redis://:hid/den@127.0.0.1", EventClock())
    assert "hid" not in str(raised.value)


def test_a_host_that_cannot_be_reached_is_given_up_as_soon_as_one_that_hangs(monkeypatch):
    monkeypatch.setattr(redis_log, "ANSWER_SECONDS", 0.1)
    with ExitStack() as stack:
        server, *clients = (stack.enter_context(socket.socket()) for _ in range(5))
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for each in clients:  # the first ones fill its queue: from then on nobody is answered
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        start = time.monotonic()
        with pytest.raises(UnreachableError, match="does not answer"):
            RedisLog(f"redis://127.0.0.1:{server.getsockname()[1]}", EventClock())
    assert time.monotonic() - start < 3
