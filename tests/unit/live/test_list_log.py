"""The log of served lists: written beside the answers, bounded, erased like events."""

import json
import sqlite3
from contextlib import closing

import pytest

from dayahead.core.errors import DataError
from dayahead.live.clock import Clock, EventClock
from dayahead.live.list_log import LISTS, N_LOGGED, ListLog
from support.waiting import wait_until

SECOND = 1_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "live" / "lists.sqlite"


def rows(path):
    with LISTS.reading(path) as connection:
        found = connection.execute("SELECT session, user, time, variant, model, items FROM lists")
        return [(*row[:5], json.loads(row[5])) for row in found]


def test_lists_are_on_disk_when_it_is_closed(path):
    clock = EventClock()
    log = ListLog(path, clock, 3600)
    clock.advance(7)
    log.add("s", "u", "A", "2026-01-01-abc", [3, 1, 2])
    clock.advance(9)
    log.add("t", None, "B", "2026-01-02-abc", ['\u00e9,"', "b"])
    log.close()
    expected = [
        ("s", "u", 7, "A", "2026-01-01-abc", [3, 1, 2]),
        ("t", None, 9, "B", "2026-01-02-abc", ['\u00e9,"', "b"]),
    ]
    assert rows(path) == expected


@pytest.mark.long
def test_they_are_written_soon_and_only_the_best_items(path):
    log = ListLog(path, Clock(), 3600)
    log.add("s", None, "A", "m", [*range(100)])
    wait_until(lambda: len(rows(path)) == 1)
    log.close()
    assert rows(path)[0][5] == [*range(N_LOGGED)]


def test_several_services_write_one_file(path):
    logs = [ListLog(path, Clock(), 3600) for _ in range(2)]
    for number in range(10):
        logs[number % 2].add(f"s{number}", None, "A", "m", [1])
    for log in logs:
        log.close()
    assert sorted(row[0] for row in rows(path)) == [f"s{number}" for number in range(10)]


def test_what_is_too_much_or_cannot_be_written_is_counted(path, monkeypatch, caplog):
    monkeypatch.setattr("dayahead.live.list_log.MOST_WAITING", 2)
    monkeypatch.setattr("dayahead.live.list_log.WRITE_SECONDS", 1000)
    lost = []
    log = ListLog(path, Clock(), 3600)
    log.on_lost = lost.append
    # The thread holds the first one, and waits for others.
    log.add("s", None, "A", "m", [1])
    wait_until(lambda: log._waiting.empty())
    for _ in range(5):
        log.add("s", None, "A", "m", [1])
    assert lost == [1, 1, 1]
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE lists")
    log.close()
    assert sum(lost) == 6
    assert "lists could not be written: no such table" in caplog.text


def test_old_lists_are_removed_when_a_service_starts_to_write(path, monkeypatch):
    monkeypatch.setattr("dayahead.live.list_log.PRUNED_AT_ONCE", 2)
    clock = EventClock()
    log = ListLog(path, clock, 1_000_000)
    for number in range(9):
        clock.advance(number * SECOND)
        log.add(f"s{number}", None, "A", "m", [1])
    log.close()
    clock.advance(10 * SECOND)
    log = ListLog(path, clock, 4)
    log.add("new", None, "A", "m", [1])
    log.close()
    assert [row[0] for row in rows(path)] == ["s6", "s7", "s8", "new"]


@pytest.mark.parametrize("content", [b"text" * 99, "events"])
def test_another_file_is_refused_and_left(path, content):
    path.parent.mkdir()
    if content == "events":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE events (a)")
            connection.execute("PRAGMA user_version = 1")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"lists\.sqlite: expected a log of lists .*; move the fi"):
        ListLog(path, Clock(), 3600)
    assert path.read_bytes() == before
