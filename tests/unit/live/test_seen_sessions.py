"""Which clicks of a session count, and what is remembered of it."""

import pytest

from dayahead.live import seen_sessions
from dayahead.live.event_log import Event
from dayahead.live.seen_sessions import SeenSessions
from dayahead.windows.metadata import SessionRules

GAP = 100


def sessions(repeats="keep", truncate="first", max_length=3):
    return SeenSessions(
        SessionRules(
            repeats=repeats,
            min_length=2,
            max_length=max_length,
            truncate=truncate,
            past_max_length=0,
        ),
        GAP,
    )


def click(session, item, time=0):
    return Event(f"{session}{item}{time}", session, None, time, {"item_id": item}, 0, time)


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ("keep", [True] * 5),
        ("drop_consecutive", [True, False, True, True, False]),
        ("drop_all", [True, False, True, False, False]),
    ],
)
def test_the_rule_for_repeats_holds(repeats, expected):
    seen = sessions(repeats, max_length=9)
    found = [seen.add(click("s", item))[1] for item in (7, 7, 8, 7, 7)]
    assert found == expected
    kept = [item for item, counts in zip((7, 7, 8, 7, 7), expected, strict=True) if counts]
    assert [each.fields["item_id"] for each in seen.events_of("s")] == kept
    assert seen.add(click("other", 7))[1]


@pytest.mark.parametrize(
    ("truncate", "expected"), [("first", [True] * 3 + [False] * 2), ("last", [True] * 5)]
)
def test_clicks_beyond_the_greatest_length_are_remembered(truncate, expected):
    seen = sessions(truncate=truncate)
    assert [seen.add(click("s", item))[1] for item in range(5)] == expected
    assert [each.fields["item_id"] for each in seen.events_of("s")] == [2, 3, 4]


def test_sessions_have_keys_in_the_order_of_their_first_clicks():
    seen = sessions()
    names = ["b", "a", "b", "c", "a"]
    assert [seen.add(click(name, 1))[0].key for name in names] == [0, 1, 0, 2, 1]
    assert seen.events_of("unknown") == []


def test_of_the_sessions_that_have_ended_the_latest_are_kept(monkeypatch):
    monkeypatch.setattr(seen_sessions, "MOST_IDLE", 3)
    seen = sessions()
    for time, name in enumerate("abcd"):
        seen.add(click(name, 1, 10 * time))
    seen.add(click("a", 2, 50))  # it is the latest now
    assert len(seen) == 4  # none has ended
    seen.add(click("e", 1, 112))
    assert [bool(seen.events_of(name)) for name in "abcde"] == [True, False, True, True, True]
    assert seen.add(click("b", 1, 121))[0].key == 5
    assert [bool(seen.events_of(name)) for name in "abcde"] == [True, True, False, True, True]


def test_there_are_never_too_many_sessions(monkeypatch):
    monkeypatch.setattr(seen_sessions, "MOST_IDLE", 1)
    monkeypatch.setattr(seen_sessions, "MOST_KEPT", 2)
    seen = sessions()
    for name in "abc":
        seen.add(click(name, 1, 10))
    assert [bool(seen.events_of(name)) for name in "abc"] == [False, True, True]
