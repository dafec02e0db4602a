"""Events over HTTP: what counts, what is refused, and services that start again."""

import json
import shutil
import sqlite3

import pytest
from starlette.testclient import TestClient

from dayahead.live.clock import Clock
from dayahead.live.live_model import LiveModel
from dayahead.serve.http import create_app
from dayahead.serve.limits import Limits
from dayahead.serve.live_feed import LiveFeed
from dayahead.serve.model_source import ModelSource
from dayahead.serve.service import Service
from support.live_services import live_client
from support.live_windows import LIVE, events_of, spread_sessions
from support.stored_models import edited
from support.tiny_settings import merge_sections, train_study
from support.waiting import wait_until
from support.window_folders import markov_days, write_window_folder

START = "2026-01-03T00:"
"""The end of the models' last window."""
STUDY = merge_sections(LIVE, training={"fit_last": False})


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    days = markov_days(n_days=3, sessions_per_day=20, n_items=30)
    folder = tmp_path_factory.mktemp("windows")
    return spread_sessions(write_window_folder(folder, days, features=True))


@pytest.fixture(scope="module")
def models(windows, tmp_path_factory):
    return train_study(windows, tmp_path_factory.mktemp("study"), STUDY) / "models"


@pytest.fixture
def live(models, tmp_path):
    with live_client(models, tmp_path / "events.sqlite") as client:
        yield client


def event(name, item, when, session="s", **more):
    return {
        "event_id": name,
        "session_id": session,
        "item_id": item,
        "event_time": f"{START}{when}",
        **more,
    }


def test_an_event_counts_once(live):
    first, other = event("a", 1, "00:01"), event("b", 2, "00:02")
    assert live.send(first) == (202, {"accepted": 1, "duplicates": 0, "refused": []})
    assert live.send(first, other) == (202, {"accepted": 1, "duplicates": 1, "refused": []})
    assert live.send(other, other)[1]["duplicates"] == 2
    assert [each.id for each in live.log.read()] == ["a", "b"]


def test_a_session_is_answered_from_the_events_seen(live):
    items = [event("a", 1, "00:01"), event("b", 2, "00:02"), event("c", 1, "00:00")]
    live.send(*items)
    by_time = sorted(items, key=lambda each: each["event_time"])
    events = [{name: each[name] for name in ("item_id", "event_time")} for each in by_time]
    answer = live.client.post("/recommend", json={"events": events, "top_k": 5}).json()
    assert live.items("s", top_k=5) == [(each["item"], each["score"]) for each in answer["items"]]
    status, answer = live.ask("unknown")
    assert (status, answer["is_cold"], answer["unknown_items"]) == (200, True, [])
    assert live.ask("unknown", cold_start="refuse")[0] == 422


def test_what_is_new_is_recommended_from_the_next_tick_on(live):
    live.send(event("a", 1, "00:01"), event("b", 777, "00:02"), event("c", 777, "00:03", "t"))
    live.send(event("d", 1, "00:04", "t"), event("e", 1, "01:00", "u"))
    assert 777 not in dict(live.items("u", top_k=100))
    assert live.ask("s")[1]["unknown_items"] == [777]
    live.send(event("f", 2, "30:00", "v"))
    assert 777 in dict(live.items("u", top_k=100))
    assert live.ask("s")[1]["unknown_items"] == []
    text = live.client.get("/metrics").text.splitlines()
    for name, value in {
        'dayahead_events_total{result="accepted"}': 6,
        "dayahead_clicks_total": 5,
        'dayahead_live{what="new_items"}': 1,
        'dayahead_live{what="sessions"}': 4,
        "dayahead_counted_until_seconds": 1_767_400_200,
    }.items():
        [found] = [each for each in text if each.startswith(f"{name} ")]
        assert float(found.rsplit(" ", 1)[1]) == value, name
    about = live.client.get("/ready").json()["model"]
    assert about["counted_until"] == "2026-01-03T00:30:00+00:00"


def test_a_running_session_is_explained_as_of_the_tick(live):
    live.send(event("a", 1, "00:01"), event("b", 777, "00:02"), event("f", 2, "30:00", "v"))
    _, answer = live.ask("s", top_k=100, explain=True)
    evidence = {each["item"]: each["evidence"] for each in answer["items"]}
    # The head ranks the first ones; the others follow by popularity.
    assert {len(parts) for parts in evidence.values()} == {0, 3}
    assert len(evidence[777]) == 3


def test_popularity_is_that_of_now(live):
    before = dict(live.items("unknown", top_k=100))
    for n in range(20):
        live.send(event(f"a{n}", 3, "00:01", f"s{n}"), event(f"b{n}", 9, "00:02", f"s{n}"))
    live.send(event("z", 2, "30:00", "v"))
    after = dict(live.items("unknown", top_k=100))
    assert max(after, key=after.get) == 9
    assert after[9] > before[9]


BAD = {
    "no events": ({}, "events: Field required"),
    "none": ({"events": []}, "events: List should have at least 1 item"),
    "no id": ({"events": [{"session_id": "s"}]}, "events.1.event_id: Field required"),
    "misspelt": (
        {"events": [{"event_id": "a", "sesion_id": "s", "item_id": 1, "event_time": 0}]},
        "events.1.session_id: Field required; there is sesion_id instead",
    ),
    "empty id": ({"events": [event("", 1, "00:01")]}, "events.1.event_id: String should have at"),
    "null item": ({"events": [event("a", None, "00:01")]}, "events.1.item_id"),
    "no time": ({"events": [event("a", 1, "xx")]}, "events.1.event_time"),
    "nested": ({"events": [event("a", 1, "00:01", other={"a": 1})]}, "events.1.other"),
    "surrogate": ({"events": [event("\ud800", 1, "00:01")]}, "events.1.event_id"),
    "no number": (
        {"events": [event("a", 1, "00:01", other=float("inf"))]},
        "events.1.other: expected text, a finite number or a boolean",
    ),
    "more": ({"events": [event("a", 1, "00:01")], "more": 1}, "more: unknown field"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_body_that_is_no_list_of_events_is_refused_whole(live, kind):
    body, message = BAD[kind]
    if body.get("events"):
        body = {**body, "events": [event("good", 1, "00:01"), *body["events"]]}
    headers = {"content-type": "application/json"}
    text = json.dumps(body).replace("Infinity", "1e999")
    answer = live.client.post("/events", content=text, headers=headers)
    assert answer.status_code == 422
    assert message in answer.json()["error"]
    assert [*live.log.read()] == []


def test_events_that_cannot_count_are_refused_by_name(live):
    old = event("old", 1, "") | {"event_time": "2026-01-02T23:29:59Z"}
    late = event("late", 1, "") | {"event_time": "2026-01-02T23:30:00Z"}
    odd = event("odd", "x1", "00:01")
    status, taken = live.send(event("good", "12", "00:01"), old, late, odd)
    assert (status, taken["accepted"], taken["duplicates"]) == (202, 2, 0)
    reasons = {each["event_id"]: each["error"] for each in taken["refused"]}
    assert "is too old" in reasons["old"]
    assert "expected 2026-01-02T23:30:00+00:00 or later" in reasons["old"]
    assert "expected a 64-bit integer" in reasons["odd"]
    assert [each.fields["item_id"] for each in live.log.read()] == [12, 1]
    assert live.send(old, odd)[0] == 422


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("userid", "user_id"), ("User-ID", "user_id"), ("usr_id", "user_id"),
        ("eventTime", "event_time"), ("ITEM_ID", "item_id"),
    ],
)  # fmt: skip
def test_a_further_field_that_is_meant_to_be_another_is_refused(live, name, meant):
    """As an unknown field it would be stored, and who erases a user would miss it."""
    wrong = event("wrong", 1, "00:01") | {name: "ann"}
    more = {"user_kind": "b", "user": "u", "item_ids": 1, "id": 2}
    status, taken = live.send(wrong, event("good", 1, "00:01") | more)
    assert (status, taken["accepted"]) == (202, 1)
    [refused] = taken["refused"]
    assert refused == {
        "event_id": "wrong", "error": f"{name}: unknown field; did you mean {meant}?",
    }  # fmt: skip
    assert [each.id for each in live.log.read()] == ["good"]


def test_events_of_the_future_are_refused(models, tmp_path):
    with live_client(models, tmp_path / "events.sqlite", Clock()) as live:
        status, taken = live.send(event("a", 1, "") | {"event_time": "2199-01-01"})
    assert status == 422
    assert "in the future" in taken["refused"][0]["error"]


@pytest.mark.long
def test_events_have_the_fields_that_the_model_reads(windows, tmp_path):
    sections = merge_sections(STUDY, model={"features": ("category",)})
    models = train_study(windows, tmp_path / "study", sections) / "models"
    with live_client(models, tmp_path / "events.sqlite") as live:
        good = event("c", 1, "00:01", category=2, other="kept")
        bad = event("a", 1, "00:01", categry=2), event("b", 1, "00:01", category="x")
        status, taken = live.send(bad[0], good, bad[1])
        assert (status, taken["accepted"]) == (202, 1)
        assert [each["event_id"] for each in taken["refused"]] == ["a", "b"]
        assert taken["refused"][0]["error"] == (
            "category is missing; this model reads it; there is categry instead"
        )
        assert live.send(*bad)[0] == 422
        [kept] = live.log.read()
        assert kept.fields == {"item_id": 1, "category": 2, "other": "kept"}


def test_limits_of_events(models, tmp_path):
    limits = Limits(sessions=2, fields=5)
    with live_client(models, tmp_path / "events.sqlite", limits=limits) as live:
        status, answer = live.send(*(event(f"{n}", 1, "00:01") for n in range(3)))
        assert status == 422
        assert "at most 2 (dayahead serve --max-sessions)" in answer["error"]
        status, answer = live.send(event("a", 1, "00:01", a=1, b=2, c=3, d=4))
        assert status == 422
        assert "events.0: 6 fields" in answer["error"]


def test_events_that_cannot_be_written_are_not_acknowledged(live, monkeypatch, caplog):
    def full(events):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(live.log, "append", full)
        answer = live.client.post("/events", json={"events": [event("a", 1, "00:01")]})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == "the events could not be written; send them again"
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (line.getMessage(), line.exc_info) == ("a request failed: no space left", None)
    assert live.send(event("a", 1, "00:01"))[1]["accepted"] == 1
    monkeypatch.setattr("dayahead.serve.micro_batches.Room.is_free", lambda *_: False)
    assert live.send(event("b", 1, "00:01"))[1]["error"].startswith("too many events wait to be")


def test_without_a_log_there_are_no_events(models):
    service = Service(ModelSource(models), "popularity", 1000)
    with TestClient(create_app(service)) as client:
        answer = client.post("/events", json={"events": [event("a", 1, "00:01")]})
        assert answer.status_code == 404
        assert "POST /events needs dayahead serve --live" in answer.json()["error"]
        answer = client.post("/recommend", json={"session_id": "s"})
        assert answer.status_code == 422
        assert "start it with --live" in answer.json()["error"]
        assert "counted_until" not in client.get("/ready").json()["model"]


def answers_to(live, events):
    """Answers to all sessions of some events."""
    return {name: live.items(name, top_k=100) for name in {each["session_id"] for each in events}}


@pytest.mark.long
def test_a_service_that_starts_again_answers_as_before(windows, models, tmp_path):
    events = events_of(windows, 2)
    with live_client(models, tmp_path / "whole.sqlite") as live:
        for each in events:
            live.send(each)
        expected = answers_to(live, events)
    for part in (events[:15], events[15:40], events[40:], events[:1]):
        with live_client(models, tmp_path / "again.sqlite") as live:
            live.send(*part)
            found = answers_to(live, events)
    assert found == expected


@pytest.mark.long
def test_a_new_model_takes_over_with_the_events_after_its_window(
    windows, models, tmp_path, monkeypatch
):
    """No event is missed, whether it came before the new model was loaded or meanwhile."""
    folder, events = tmp_path / "models", events_of(windows, 2)
    shutil.copytree(models, folder)
    with live_client(folder, tmp_path / "events.sqlite", reload_seconds=0.01) as live:
        live.send(*events[:20])
        before, follow = live.service.model, LiveFeed.follow

        def follow_meanwhile(feed, loaded):
            live.send(*events[20:30])
            counted = follow(feed, loaded)
            live.send(*events[30:40])
            return counted

        with monkeypatch.context() as patch:
            patch.setattr(LiveFeed, "follow", follow_meanwhile)
            # Another version, with the same weights.
            edited(folder, lambda config: config.update(window="2026-01-02b"))
            wait_until(lambda: live.service.model.window != before.window)
        live.send(*events)
        found = answers_to(live, events)
    with live_client(models, tmp_path / "other.sqlite") as live:
        live.send(*events)
        assert found == answers_to(live, events)


def test_a_new_model_that_does_not_count_is_refused(models, tmp_path, caplog):
    folder = tmp_path / "models"
    shutil.copytree(models, folder)
    with live_client(folder, tmp_path / "events.sqlite", reload_seconds=0.01) as live:
        before = live.service.model.version

        def without_ticks(config):
            config["live"]["tick"] = 0
            config["window"] = "2026-01-02b"

        edited(folder, without_ticks)
        wait_until(lambda: "refused" in caplog.text)
        assert live.service.model.version == before
        assert live.send(event("a", 1, "00:01"))[0] == 202


def test_old_events_are_removed(models, tmp_path):
    """Those that arrived more than an hour before the model's last window ended; later ones, which
    no fit has counted, are kept however old they are."""
    log = tmp_path / "events.sqlite"
    with live_client(models, log) as live:
        live.send(event("a", 1, "00:01"))
    with sqlite3.connect(log) as connection:
        connection.execute("UPDATE events SET arrived = arrived - 3700 * 1000000")
    connection.close()
    with live_client(models, log) as live:
        live.send(event("b", 1, "00:01"))
        live.send(event("c", 1, "") | {"event_time": "2026-01-03T05:00:00Z"})
        live.service.feed.prune()
        assert [each.id for each in live.log.read()] == ["b", "c"]


def test_events_of_sessions_that_the_fit_knew_in_part_are_kept(models, tmp_path, monkeypatch):
    """A session goes on after the window's end if its gap has not passed: the model reads both."""
    monkeypatch.setattr("support.live_services.KEEP_SECONDS", 0.0)
    before = event("a", 1, "") | {"event_time": "2026-01-02T23:55:00Z"}
    with live_client(models, tmp_path / "events.sqlite") as live:
        live.send(before, event("b", 2, "00:01"), event("c", 3, "59:00"))
        live.service.feed.prune()
        assert [each.id for each in live.log.read()] == ["a", "b", "c"]


def test_a_service_that_fails_to_count_is_not_ready(models, tmp_path, monkeypatch, caplog):
    with live_client(models, tmp_path / "events.sqlite") as live:
        live.send(event("a", 1, "00:01"), event("b", 2, "00:02"))
        assert live.client.get("/ready").status_code == 200

        with monkeypatch.context() as patch:
            patch.setattr(LiveModel, "_receive", failing)
            live.send(event("c", 2, "30:00"))
            with pytest.raises(MemoryError, match="no room"):
                live.ask("s")
        wait_until(lambda: "start the service again" in caplog.text)
        with pytest.raises(RuntimeError, match="must be started again"):
            live.ask("s")
        assert live.client.get("/ready").status_code == 503
    with live_client(models, tmp_path / "events.sqlite") as live:
        assert live.client.get("/ready").status_code == 200
        assert live.ask("s")[0] == 200


def test_a_new_model_that_fails_to_count_is_tried_again(models, tmp_path, monkeypatch, caplog):
    """Meanwhile the old one gets all events."""
    folder = tmp_path / "models"
    shutil.copytree(models, folder)
    with live_client(folder, tmp_path / "events.sqlite", reload_seconds=0.05) as live:
        before = live.service.model
        with monkeypatch.context() as patch:
            patch.setattr(LiveFeed, "_counted", failing)
            edited(folder, lambda config: config.update(window="2026-01-02b"))
            wait_until(lambda: caplog.text.count("a new model is refused") > 1)
            live.send(event("a", 1, "00:01"))
        wait_until(lambda: live.service.model.window != before.window)
        live.send(event("b", 2, "00:02"))
        events = [event("a", 1, "00:01"), event("b", 2, "00:02")]
        timed = [{name: each[name] for name in ("item_id", "event_time")} for each in events]
        answer = live.client.post("/recommend", json={"events": timed, "top_k": 5}).json()
        items = [each["item"] for each in answer["items"]]
        assert [item for item, _ in live.items("s", top_k=5)] == items
        assert live.service.is_ready


def failing(*_):
    raise MemoryError("no room")
