"""After `forget` no log of events of the project names the user, also while a service writes it."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from dayahead.core.errors import DataError
from dayahead.core.files import write_parquet
from dayahead.dataset.schema import load_dataset
from dayahead.erasure.forget import forget
from dayahead.erasure.holdings import Holding
from dayahead.live.clock import Clock, EventClock
from dayahead.live.event_log import Event
from dayahead.live.list_log import DEFAULT_LISTS, LISTS, ListLog
from dayahead.live.sqlite_log import SqliteLog
from support.user_datasets import dataset_of_users
from support.window_folders import bytes_in

OTHERS = [f"user-{number:03}" for number in range(1, 60)]


def event(number, session, user=None):
    return Event(f"e{number}", session, user, number, {"item_id": number})


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A project whose data set has users, and a downloaded table with a session of user-000."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    Path("datasets").mkdir()
    Path("datasets/shop.yaml").write_text(dataset_of_users())
    rows = {"user_id": ["user-000", "user-001"], "session_id": ["downloaded", "other"]}
    write_parquet(tmp_path / "data/raw/events-00000.parquet", pa.table(rows))
    return tmp_path


@pytest.fixture
def service():
    """Open logs as services do; they are closed at the end."""
    logs = []

    def opened(path="live/events.sqlite"):
        log = SqliteLog(Path(path), EventClock())
        log.deliver = lambda events: None
        logs.append(log)
        return log

    yield opened
    for log in logs:
        log.close()


def erase(root, users=("user-000",), *, dry_run=False):
    return forget(root, Path("datasets/shop.yaml"), users, root / ".dvc/cache", dry_run=dry_run)


def ids_in(log):
    return [each.id for each in log.read()]


def holds(text):
    """Say whether a file of a log has these bytes."""
    return any(text.encode() in path.read_bytes() for path in Path("live").iterdir())


def test_events_of_the_users_and_of_their_sessions_go_while_a_service_runs(shop, service):
    log = service()
    log.append(
        [
            event(1, "a", "user-000"),
            event(2, "a"),  # before the user has signed in
            event(3, "b", "user-001"),
            event(4, "downloaded"),  # known from data/raw alone
            event(5, "c"),
        ]
    )
    erasure = erase(shop)
    assert Holding("live", shop / "live/events.sqlite", 3) in erasure.holdings.found
    assert erasure.holdings.rows["user-000"] == 2
    assert (erasure.missing, erasure.kept) == ([], [])
    assert ids_in(log) == ["e3", "e5"]
    assert log.append([event(6, "c"), event(3, "b")]) == [True, False]
    assert ids_in(log) == ["e3", "e5", "e6"]
    assert [each.position for each in log.read()] == [3, 5, 6]


def test_tables_without_users_are_searched_for_sessions_of_a_log(shop, service):
    service().append([event(1, "today", "user-000")])
    write_parquet(shop / "results/ranks/a.parquet", pa.table({"session_id": ["today"]}))
    assert "results/ranks" in erase(shop).holdings.by_place()


def test_lists_of_the_users_and_of_their_sessions_go_too(shop, service):
    service().append([event(1, "a", "user-000")])
    lists = ListLog(shop / DEFAULT_LISTS, Clock(), 1000)
    for session, user in (("a", None), ("b", "user-000"), ("downloaded", None), ("c", "user-001")):
        lists.add(session, user, "A", "m", ["secret" if session != "c" else "other"])
    lists.close()
    erasure = erase(shop)
    assert Holding("live", shop / DEFAULT_LISTS, 3) in erasure.holdings.found
    assert erasure.holdings.rows["user-000"] == 3  # in data/raw, events and lists
    with LISTS.reading(shop / DEFAULT_LISTS) as connection:
        assert connection.execute("SELECT session FROM lists").fetchall() == [("c",)]
    assert not holds("secret")


@pytest.mark.long
def test_no_file_of_a_log_keeps_a_byte_of_them(shop, service):
    """Pages that were split and merged hold copies of rows, which a mere DELETE leaves."""
    log = service()
    draw = random.Random(2)
    users = ["user-000", *OTHERS]
    for start in range(0, 40_000, 500):
        log.append(
            [
                Event(f"{draw.getrandbits(64):x}-{user}-", f"s-{user}-", user, number, {})
                for number in range(start, start + 500)
                for user in [draw.choice(users)]
            ]
        )
        log.prune(start - 20_000)
    for user in users[:30]:
        erase(shop, [user])
        assert not holds(f"{user}-"), user
    assert holds(f"{users[30]}-")


def test_a_dry_run_lists_the_same_and_changes_nothing(shop, service):
    log = service()
    log.append([event(1, "a", "user-000"), event(2, "b")])
    log.close()
    before = bytes_in(shop / "live")
    listed = erase(shop, dry_run=True).holdings
    assert bytes_in(shop / "live") == before
    assert erase(shop).holdings.found == listed.found


@pytest.mark.parametrize("damage", ["text", "page", "other"])
def test_a_damaged_log_is_one_error_and_nothing_is_removed(shop, service, damage):
    log = service()
    log.append([event(number, "a", "user-000") for number in range(5000)])
    log.close()
    path = shop / "live/events.sqlite"
    content = bytearray(path.read_bytes())
    if damage == "page":
        content[8192:-4096] = b"\xff" * (len(content) - 12_288)
    elif damage == "text":
        content[:] = b"no database at all"
    path.write_bytes(content)
    if damage == "other":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 7")
    before = bytes_in(shop)
    with pytest.raises(DataError, match=r"events\.sqlite: expected a log of events .* \(.*\);"):
        erase(shop)
    left = {name: text for name, text in bytes_in(shop).items() if not name.endswith(".lock")}
    assert left == {name: text for name, text in before.items() if not name.endswith(".lock")}
    assert load_dataset("shop").forgotten.users == ()


def test_all_logs_are_searched_and_a_user_may_be_in_none(shop, service):
    first, second = service(), service("live/second.sqlite")
    first.append([event(1, "a")])
    second.append([event(1, "a", "user-009")])
    erasure = erase(shop, ["user-009", "user-777"])
    assert erasure.missing == ["user-777"]
    assert (ids_in(first), ids_in(second)) == ([], [])  # the session is the user's in both
    second.append([event(2, "b")])
    assert erase(shop, ["user-777"]).missing == ["user-777"]
    assert ids_in(second) == ["e2"]


def test_a_log_that_is_read_for_long_is_named_and_done_by_the_next_call(shop, service, monkeypatch):
    monkeypatch.setattr("dayahead.live.table_file.BUSY_SECONDS", 0.2)
    log = service()
    log.append([event(1, "a", "user-000"), event(2, "b"), event(3, "b")])
    reader = log.read()
    next(reader)
    erasure = erase(shop)
    assert [each.path.name for each in erasure.kept] == ["events.sqlite"]
    assert ids_in(log) == ["e2", "e3"]
    assert holds("user-000")
    reader.close()
    assert erase(shop, ["user-000"]).kept == []
    assert not holds("user-000")
    log.append([event(4, "c")])


def test_a_log_that_is_written_for_long_is_named_and_the_rest_is_erased(shop, service, monkeypatch):
    monkeypatch.setattr("dayahead.live.table_file.BUSY_SECONDS", 0.2)
    service().append([event(1, "a", "user-000")])
    with closing(sqlite3.connect("live/events.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        erasure = erase(shop)
    assert [each.path.name for each in erasure.kept] == ["events.sqlite"]
    assert not (shop / "data/raw").exists()
