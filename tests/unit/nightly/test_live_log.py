"""The live log beside the official one: what a night says of it, and what it finds in a year."""

import json
import logging
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd
import pytest

from dayahead.live.clock import EventClock
from dayahead.live.event_log import Event
from dayahead.live.sqlite_log import SqliteLog
from dayahead.nightly.live_log import EMPTY, compared
from support.pretended_nights import run_nights
from support.raw_clicks import write_raw_clicks
from support.window_folders import day

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
FAULTS = ("missing", "doubled", "ahead", "behind")


@dataclass(frozen=True)
class Site:
    """What is ordinary at a site."""

    n_sessions: int
    """Of a usual day; days have a quarter less or more, weekends half."""
    sampled: float = 1.0
    """Share of the sessions whose client reports events at all."""
    lost: float = 0.02
    """Share of the events that do not arrive; on some days five times as many."""

    def day(self, number, draw, fault=None, share=0.0):
        """Return the official and the live log of a day, and its span.

        A fault concerns all sessions of one client, which has such a share of them.
        """
        weekday = 0.5 if number % 7 >= 5 else 1.0
        n_sessions = max(20, round(self.n_sessions * weekday * draw.uniform(0.75, 1.25)))
        lengths = draw.geometric(0.25, n_sessions)
        sessions = np.repeat(np.arange(n_sessions), lengths)
        n_events = len(sessions)
        start = number * DAY
        begins = draw.integers(-2 * HOUR, DAY, n_sessions)
        elapsed = np.cumsum(draw.exponential(40 * SECOND, n_events)).astype(int)
        elapsed -= elapsed[np.cumsum(lengths) - lengths][sessions]
        times = start + begins[sessions] + elapsed
        items = draw.zipf(1.3, n_events) % 1000  # popular ones come again within a session
        lost = self.lost * (5 if draw.random() < 0.02 else draw.uniform(0.3, 2))
        reports = draw.random(n_sessions) < self.sampled
        is_live = reports[sessions] & (draw.random(n_events) >= lost)
        is_official = draw.random(n_events) >= 0.005
        of_client = (draw.random(n_sessions) < share)[sessions]
        reported = times + draw.integers(-2 * SECOND, 2 * SECOND, n_events)
        if fault == "missing":
            is_live &= ~of_client
        elif fault in {"ahead", "behind"}:
            reported = reported + np.where(of_client, HOUR if fault == "ahead" else -HOUR, 0)
        # A retry of a report: a thousandth comes twice, of a faulty client all.
        again = is_live & ((draw.random(n_events) < 0.001) | (of_client & (fault == "doubled")))
        rows = np.concatenate([np.flatnonzero(is_live), np.flatnonzero(again)])
        lags = (draw.lognormal(0, 1.5, len(rows)) * SECOND).astype(int)
        pairs = (sessions * 1000 + items).astype(np.uint64)
        owners = sessions.astype(np.uint64)
        happened = pd.DataFrame({"session": owners, "pair": pairs, "time": times})
        live = happened.iloc[rows].assign(time=reported[rows], arrived=times[rows] + lags)
        return happened[is_official], live, (start, start + DAY)


SITES = {
    "small": (Site(80), 0.3),
    "medium": (Site(400, lost=0.03), 0.2),
    "large": (Site(3000), 0.15),
    "sampled": (Site(400, sampled=0.4), 0.6),
}
"""With the share of the sessions that the client has by whom faults come."""
WORDS = {"missing": "are missing", "doubled": "more events", "ahead": "ahead", "behind": "behind"}


def findings_of(site, n_days, seed, faults=None):
    """Return the findings of each day of a site, with a fault on some: {day: (fault, share)}."""
    draw, earlier = np.random.default_rng(seed), []
    for number in range(n_days):
        logs = site.day(number, draw, *(faults or {}).get(number, ()))
        earlier.append(compared(*logs, earlier))
    return [each["findings"] for each in earlier]


@pytest.mark.long
@pytest.mark.parametrize(
    ("site", "share"),
    [
        pytest.param(*SITES[name], id=name, marks=pytest.mark.slow if name == "large" else [])
        for name in SITES
    ],
)
def test_a_year_has_hardly_a_false_alarm_and_hardly_a_fault_is_missed_on_its_day(site, share):
    first = 3 if site.sampled < 1 else 0  # before it is known what is usual
    ordinary = findings_of(site, 365, 1)
    days = {10 + 9 * number: (FAULTS[number % 4], share) for number in range(39)}
    found = findings_of(site, 365, 2, days)
    alarms = [number for number, each in enumerate(ordinary) if each and number >= first]
    alarms += [n for n, each in enumerate(found) if each and n not in days and n >= first]
    assert len(alarms) <= 7  # 1 %
    # By chance a fault touches too few events to be reported: 6 of 624 in 4 years of these sites.
    missed = [number for number in days if not found[number]]
    assert len(missed) <= 2  # of 39
    for number in days.keys() - {*missed}:
        [finding] = found[number]
        assert WORDS[days[number][0]] in finding, number


def clicks(rows):
    """Rows are (session, item, time in seconds)."""
    sessions, items, times = (np.array(column) for column in zip(*rows, strict=True))
    pairs = (sessions * 1000 + items).astype(np.uint64)
    return pd.DataFrame(
        {"session": sessions.astype(np.uint64), "pair": pairs, "time": times * SECOND}
    )


def live(rows, lag=0):
    arrived = np.array([time + lag for *_, time in rows]) * SECOND
    return clicks(rows).assign(arrived=arrived)


def test_an_event_is_found_where_session_item_and_minute_agree():
    rows = [(1, 1, 100), (1, 2, 200), (2, 1, 300), (2, 1, 900)]
    theirs = [(1, 1, 160), (1, 2, 261), (3, 1, 300), (2, 1, 901)]
    figures = compared(clicks(rows), live(theirs, 7), (0, 1000 * SECOND), [])
    assert (figures["in_live"], figures["in_official"]) == (0.5, 0.5)
    assert (figures["live"], figures["official"], figures["lag"]) == (4, 4, [7.0, 7.0])


def test_an_event_counts_in_the_span_alone_and_is_found_beyond_it():
    rows, theirs = [(1, 1, 99), (1, 2, 150)], [(1, 1, 101), (1, 2, 201)]
    figures = compared(clicks(rows), live(theirs), (100 * SECOND, 200 * SECOND), [])
    assert (figures["official"], figures["live"]) == (1, 1)
    assert (figures["in_live"], figures["in_official"]) == (1.0, 1.0)


@pytest.mark.parametrize("rows", [[], [(1, 1, 100)]])
@pytest.mark.parametrize("theirs", [[], [(1, 1, 100)]])
def test_logs_may_be_empty(rows, theirs):
    own, other = clicks(rows) if rows else EMPTY, live(theirs) if theirs else EMPTY
    figures = compared(own, other, (0, DAY), [])
    assert bool(figures["findings"]) == (bool(rows) and not theirs)
    json.dumps(figures, allow_nan=False)


def test_what_is_usual_is_learned_after_three_nights():
    rows = [(session, 1, session) for session in range(1000)]
    half = compared(clicks(rows), live(rows[::2]), (0, DAY), [])
    assert "50.0 % of the official log's events are missing" in half["findings"][0]
    assert compared(clicks(rows), live(rows[::2]), (0, DAY), [half] * 2)["findings"]
    assert not compared(clicks(rows), live(rows[::2]), (0, DAY), [half] * 3)["findings"]
    assert compared(clicks(rows), live(rows[::3]), (0, DAY), [half] * 3)["findings"]


def write_log(root, rows, user=None):
    log = SqliteLog(root / "live/events.sqlite", EventClock())
    log.deliver = lambda events: None
    log.append(
        [
            Event(f"e{n}", session, user and f"u{session}", time, {"item_id": item})
            for n, (session, item, time) in enumerate(rows)
        ]
    )
    log.close()


def rows_of_window():
    start = int(datetime.fromisoformat(f"{day(2)}T00:00+00:00").timestamp()) * SECOND
    return [(f"s{n}", n % 7, start + n * 10 * 60 * SECOND) for n in range(-6, 144)]


def details_of(root):
    night, _ = run_nights(root, 3, first=3)
    [decision] = night.history.read().decisions
    return decision.details.get("live_log"), night.history.page.read_text()


def test_a_night_compares_the_newest_window(root, caplog):
    rows = rows_of_window()
    write_raw_clicks(root, rows)
    write_log(root, rows[:100])
    with caplog.at_level(logging.WARNING):
        figures, page = details_of(root)
    assert (figures["official"], figures["live"], figures["in_live"]) == (144, 94, 0.6528)
    assert (figures["hours"], figures["of_hours"]) == (24.0, 24.0)
    [finding] = figures["findings"]
    assert finding in caplog.text
    assert "34.7 % of the official log" in finding
    assert "Live log: 94 events; official log: 144, of which 65.3 % are in the live log;" in page
    assert '<span class="mark note">live log</span> 34.7 %' in page


def test_a_log_that_begins_within_the_window_is_compared_from_there_on(root):
    rows = rows_of_window()
    write_raw_clicks(root, rows)
    write_log(root, rows[78:])
    figures, page = details_of(root)
    assert (figures["hours"], figures["in_live"], figures["findings"]) == (12.0, 1.0, [])
    assert "Live log: 72 events, of the last 12.0 of 24.0 hours; official log: 72" in page


def test_sessions_cut_by_gaps_are_compared_by_user(root):
    rows = rows_of_window()
    write_raw_clicks(root, [(f"u{session}", item, time) for session, item, time in rows], "user_id")
    write_log(root, rows, user=True)
    figures, _ = details_of(root)
    assert (figures["in_live"], figures["in_official"], figures["findings"]) == (1.0, 1.0, [])


@pytest.mark.parametrize("damage", ["text", "empty", "no raw"])
def test_what_cannot_be_compared_is_a_finding_and_holds_nothing(root, damage):
    rows = rows_of_window()
    if damage != "no raw":
        write_raw_clicks(root, rows)
    write_log(root, [] if damage == "empty" else rows)
    if damage == "text":
        (root / "live/events.sqlite").write_text("text")
    figures, page = details_of(root)
    [finding] = figures["findings"]
    expected = {"text": "not a database", "empty": "holds no events", "no raw": "manifest.json"}
    assert expected[damage] in finding
    assert "published" in page
    assert '<span class="mark note">live log</span>' in page


def test_without_a_live_log_nothing_is_said(root, tmp_path):
    figures, page = details_of(root)
    assert figures is None
    assert "live" not in page.partition("<body>")[2]


def test_the_night_leaves_the_log_as_it_is(root):
    write_raw_clicks(root, rows_of_window())
    write_log(root, rows_of_window())
    before = {path.name: path.read_bytes() for path in (root / "live").iterdir()}
    details_of(root)
    assert {path.name: path.read_bytes() for path in (root / "live").iterdir()} == before
