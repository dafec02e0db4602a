"""Lists that were served, joined with the clicks that followed: by hand, and on a night's page."""

import math
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError
from dayahead.live.clock import EventClock
from dayahead.live.list_log import ListLog
from dayahead.nightly.online import online_figures, online_lines
from support.live_services import live_client
from support.live_windows import LIVE, events_of, spread_sessions
from support.pretended_nights import run_nights
from support.raw_clicks import write_raw_clicks
from support.tiny_settings import train_study
from support.window_folders import day, markov_days, write_window_folder

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = int(datetime.fromisoformat(f"{day(2)}T00:00+00:00").timestamp()) * SECOND


def write_clicks(root, rows, owner="session_id"):
    """Write data/raw with rows of (session, item, seconds after START)."""
    write_raw_clicks(root, [(who, item, START + time * SECOND) for who, item, time in rows], owner)


def write_lists(root, rows, *, by_user=False):
    """Log lists of (session, variant, items, seconds after START)."""
    clock = EventClock()
    log = ListLog(root / "live/lists.sqlite", clock, 10**9)
    for session, variant, items, time in rows:
        clock.advance(START + time * SECOND)
        named = ("other", session) if by_user else (session, None)
        log.add(*named, variant, "m", items)
    log.close()


def of(root, **span):
    found = online_figures(root, **span)
    return {
        name: (each["clicks"], each["recall_at_20"][0], each["ndcg_at_20"][0])
        for name, each in found["variants"].items()
    }


def test_a_click_has_the_rank_of_its_item_in_the_last_list_before_it(tmp_path):
    write_lists(
        tmp_path,
        [
            ("a", "A", [1, 2, 3], 0),
            ("a", "A", [4, 5], 10),  # shown after the other, before the same click
            ("b", "A", [7, 8, 9], 20),
            ("c", "A", [1], 30),  # no click
            ("a", "A", [6], 40),
        ],
    )
    write_clicks(tmp_path, [("b", 1, 20), ("a", 5, 15), ("b", 9, 25), ("b", 7, 26), ("a", 2, 50)])
    # Ranks 2, 3 and 0; the click of b at second 20 is that which asked for the list.
    expected = (3, 2 / 3, pytest.approx((1 / math.log2(3) + 1 / 2) / 3))
    assert of(tmp_path) == {"A": expected}
    assert online_figures(tmp_path)["lists"] == 5


def test_a_click_of_half_an_hour_later_is_no_answer(tmp_path):
    write_lists(tmp_path, [("a", "A", [1], 0), ("b", "A", [1], 0)])
    write_clicks(tmp_path, [("a", 1, 1800), ("b", 1, 1801)])
    assert of(tmp_path)["A"] == (1, 1.0, 1.0)


def test_sessions_that_are_cut_by_gaps_are_joined_by_user(tmp_path):
    write_lists(tmp_path, [("u1", "A", ["1"], 0)], by_user=True)
    write_clicks(tmp_path, [("u1", 1, 5)], owner="user_id")
    assert of(tmp_path)["A"] == (1, 1.0, 1.0)


def test_a_click_is_joined_once_though_a_part_at_a_time_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.nightly.online.PART", 10 * SECOND)
    lists = [("a", "A", [1, 2], 8), ("a", "A", [2], 12), ("a", "B", [5], 31), ("b", "A", [9], 39)]
    write_lists(tmp_path, lists)
    write_clicks(tmp_path, [("a", 2, 14), ("a", 5, 33), ("b", 9, 41)])
    whole = {"start": START, "end": START + 50 * SECOND}
    assert of(tmp_path, **whole) == {"A": (2, 1.0, 1.0), "B": (1, 1.0, 1.0)}
    span = {"start": START + 10 * SECOND, "end": START + 31 * SECOND}
    assert of(tmp_path, **span) == {"A": (1, 1.0, 1.0)}


EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 40), st.booleans()),
    min_size=1,
    max_size=25,
    unique_by=lambda event: event[2],
)
"""Session, item, minute, and whether it is a click or a list that shows the item alone."""


def ranks_by_definition(events):
    """Walk through the events in order of time; the last list of a session waits for a click."""
    waiting, ranks = {}, []
    for session, item, minute, is_click in sorted(events, key=lambda event: event[2]):
        if not is_click:
            waiting[session] = item, minute
        elif session in waiting:
            shown, since = waiting.pop(session)
            ranks += [int(shown == item)] if minute - since <= 30 else []
    return ranks


@given(EVENTS)
@settings(max_examples=25)
def test_any_lists_and_clicks_are_joined_as_defined(events):
    with TemporaryDirectory() as folder:
        root = Path(folder)
        shown = sorted((each for each in events if not each[3]), key=lambda each: each[2])
        write_lists(root, [(s, "A", [item], 60 * minute) for s, item, minute, _ in shown])
        clicks = [(s, item, 60 * minute) for s, item, minute, is_click in events if is_click]
        write_clicks(root, clicks or [("other", 1, 0)])
        expected = ranks_by_definition(events)
        found = of(root)
    if not expected:
        assert found == {}
    else:
        mean = pytest.approx(sum(expected) / len(expected))
        assert found == {"A": (len(expected), mean, mean)}


def trial(root, hits_a, hits_b, n=60):
    """Lists and clicks of `n` sessions a variant; of so many, the click is in the list."""
    rows = [
        (f"{v}{i}", v, i < hits) for v, hits in (("A", hits_a), ("B", hits_b)) for i in range(n)
    ]
    write_lists(root, [(name, v, [1], i) for i, (name, v, _) in enumerate(rows)])
    write_clicks(root, [(name, 1 if hit else 2, i + 5) for i, (name, _, hit) in enumerate(rows)])


def test_the_difference_of_two_variants_has_an_interval(tmp_path):
    trial(tmp_path, 20, 50)
    found = online_figures(tmp_path)
    mean, low, high = found["difference"]["recall_at_20"]
    assert mean == pytest.approx(0.5)
    half = 1.96 * math.sqrt((1 / 3 * 2 / 3 + 5 / 6 * 1 / 6) / 60)
    assert (low, high) == (pytest.approx(0.5 - half, abs=0.03), pytest.approx(0.5 + half, abs=0.03))
    assert found == online_figures(tmp_path)
    total, a, b, difference = online_lines(found)
    assert total == "120 lists served, 120 clicks within 30 minutes after one"
    assert a.startswith("A: 60 sessions, 60 clicks, recall@20 0.3333 (0.2")
    assert b.startswith("B: 60 sessions, 60 clicks, recall@20 0.8333 (0.7")
    assert difference.startswith("B - A: recall@20 +0.5000 (+0.3")


def test_a_night_joins_the_lists_of_its_window(root):
    trial(root, 30, 30)
    night, _ = run_nights(root, 3, first=3)
    [decision] = night.history.read().decisions
    assert decision.details["online"] == online_figures(root)
    page = night.history.page.read_text()
    assert "Online: 120 lists served, 120 clicks within 30 minutes after one" in page
    assert "B - A: recall@20 +0.0000 (-0.1" in page


def test_what_cannot_be_joined_is_said_and_holds_nothing(root):
    (root / "live").mkdir()
    (root / "live/lists.sqlite").write_text("text")
    write_clicks(root, [("a", 1, 0)])
    night, _ = run_nights(root, 3, first=3)
    [decision] = night.history.read().decisions
    assert decision.kind == "published"
    assert "lists are not joined with clicks: " in decision.details["online"]["problem"]
    assert "expected a log of lists" in night.history.page.read_text()


def test_the_verb_prints_the_same(root):
    with pytest.raises(ConfigError, match="there are no lists; start services"):
        CliRunner().invoke(app, ["online"], catch_exceptions=False)
    trial(root, 20, 50)
    shown = CliRunner().invoke(app, ["online"], catch_exceptions=False)
    assert shown.output.splitlines() == online_lines(online_figures(root))
    write_lists(root, [("late", "A", [1], 86_400)])
    last = CliRunner().invoke(app, ["online"], catch_exceptions=False).output.splitlines()[-1]
    assert last == (
        f"1 lists are later than the official log, which ends at {day(3)} 00:00 UTC: their clicks "
        f"are not known yet"
    )


def test_lists_of_other_days_are_left_out(root):
    trial(root, 20, 50)
    later = CliRunner().invoke(app, ["online", "--since", day(3)], catch_exceptions=False)
    assert later.output == "0 lists served, 0 clicks within 30 minutes after one\n"


@pytest.mark.long
def test_a_replayed_day_is_scored_as_it_was_served(root):
    days = markov_days(n_days=3, sessions_per_day=20, n_items=40)
    windows = spread_sessions(write_window_folder(root / "windows", days, features=True))
    models = train_study(windows, root / "study", LIVE | {"training": {"fit_last": False}})
    clock, shown, ranks, clicks = EventClock(), {}, [], []
    log = ListLog(root / "live/lists.sqlite", clock, 10**9)
    with live_client(models / "models", root / "live/events.sqlite", clock, lists=log) as live:
        for event in events_of(windows, 2):
            session, item = event["session_id"], event["item_id"]
            if session in shown:  # clicks of a session are 5 minutes apart
                top = shown[session]
                ranks.append(top.index(item) + 1 if item in top else 0)
            live.send(event)
            shown[session] = [found for found, _ in live.items(session, top_k=5)]
            time = datetime.fromisoformat(event["event_time"]).replace(tzinfo=UTC)
            clicks.append((session, item, int(time.timestamp()) - START // SECOND))
    log.close()
    write_clicks(root, clicks)
    gains = [1 / math.log2(1 + rank) if rank else 0 for rank in ranks]
    found = online_figures(root)["variants"]["A"]
    assert found["clicks"] == len(ranks) > 20
    assert found["recall_at_20"][0] == pytest.approx(sum(rank > 0 for rank in ranks) / len(ranks))
    assert found["ndcg_at_20"][0] == pytest.approx(sum(gains) / len(ranks))
    assert 0 < found["recall_at_20"][0] < 1
