"""The log of events in a file: nothing twice, nothing lost, one service at a time."""

import sqlite3
from contextlib import closing

import pytest

from dayahead.core.errors import BusyError, DataError
from dayahead.live.clock import Clock, EventClock
from dayahead.live.event_log import Event
from dayahead.live.sqlite_log import PRUNED_AT_ONCE, SqliteLog
from support.event_logs import opened_logs


def event(name, time=0, **more):
    return Event(f"e{name}", f"s{name}", None, time, {"item_id": name}, **more)


@pytest.fixture
def opened(tmp_path):
    """Open the log; what it delivers is in `delivered`."""
    path = tmp_path / "live" / "events.sqlite"

    def make(clock=None, path=path):
        return SqliteLog(path, clock or EventClock())

    with opened_logs(make) as opened:
        yield opened


def test_events_are_kept_delivered_and_read_in_their_order(opened):
    log = opened()
    assert log.append([event(2, 20), event(1, 10)]) == [True, True]
    assert log.append([event(3, 30)]) == [True]
    expected = [
        event(2, 20, position=1, arrived=20),
        event(1, 10, position=2, arrived=20),  # the clock does not go back
        event(3, 30, position=3, arrived=30),
    ]
    assert log.delivered == [*log.read()] == expected
    assert [*log.read(2)] == expected[2:]
    log.close()
    again = opened()
    assert [*again.read()] == expected
    assert again.complete_until() == 30
    again.append([event(4, 5)])
    assert again.delivered == [event(4, 5, position=4, arrived=30)]


def test_an_event_that_is_sent_again_counts_once(opened):
    log = opened()
    log.append([event(1, 10)])
    assert log.append([event(2, 20), event(1, 99), event(2, 98)]) == [True, False, False]
    assert [each.id for each in log.delivered] == ["e1", "e2"]
    log.close()
    assert opened().append([event(1, 30), event(3, 30)]) == [False, True]


def test_the_clock_of_the_machine_does_not_go_back(opened, monkeypatch):
    times = iter([100_000, 50_000, 200_000])
    monkeypatch.setattr("dayahead.live.clock.time.time_ns", lambda: next(times))
    log = opened(Clock())
    log.append([event(1), event(2), event(3)])
    assert [each.arrived for each in log.delivered] == [100, 100, 200]


def test_nothing_is_kept_or_delivered_where_a_part_cannot_be_written(opened):
    log = opened()
    bad = event(2)._replace(session=None)  # the table has no null there
    with pytest.raises(OSError, match=r"events\.sqlite: events could not be written"):
        log.append([event(1), bad])
    assert log.delivered == [*log.read()] == []
    assert log.append([event(1)]) == [True]


def test_a_second_service_is_refused(opened):
    first = opened()
    with pytest.raises(BusyError, match="another service uses this log"):
        opened()
    first.close()
    opened()


@pytest.mark.parametrize("content", [b"no database at all, but text" * 99, "table"])
def test_a_file_that_is_no_log_is_refused_and_left(tmp_path, opened, content):
    path = tmp_path / "other.sqlite"
    if content == "table":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE other (a)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"other\.sqlite: expected a log of events"):
        opened(path=path)
    assert path.read_bytes() == before


def test_a_folder_in_place_of_the_file_is_refused(tmp_path, opened):
    with pytest.raises(DataError, match=r"expected a log of events .* give another --events-log"):
        opened(path=tmp_path)


def test_old_events_are_removed_by_arrival(opened):
    log = opened()
    log.append([event(n, 10 * n) for n in range(1, 6)] + [event(6, 1)])
    assert log.prune(30) == 2
    assert [each.id for each in log.read()] == ["e3", "e4", "e5", "e6"]
    assert log.append([event(7, 60)]) == [True]
    assert log.delivered[-1].position == 7


def test_more_are_removed_than_at_once(opened, monkeypatch):
    monkeypatch.setattr("dayahead.live.sqlite_log.PRUNED_AT_ONCE", 2)
    assert PRUNED_AT_ONCE > 2
    log = opened()
    log.append([event(n, n) for n in range(7)])
    assert log.prune(5) == 5
    assert [each.time for each in log.read()] == [5, 6]
