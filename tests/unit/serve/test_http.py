"""The HTTP service: answers, what it refuses, state and metrics."""

import json
import re
import threading

import pytest
from starlette.testclient import TestClient

from dayahead.serve.http import create_app
from dayahead.serve.micro_batches import Room
from dayahead.serve.model_source import ModelSource
from dayahead.serve.service import Service

FEATURES = ("category", "price")
JSON = {"content-type": "application/json"}


def ask(client, **asked):
    answer = client.post("/recommend", json=asked)
    return answer.status_code, answer.json()


def pairs(answer):
    return [(each["item"], each["score"]) for each in answer["items"]]


def test_a_session_gets_what_recommend_gives(serve, load):
    client, model = serve("memory"), load("memory")
    status, answer = ask(client, session=[1, 99, 2, 99], top_k=4, exclude_seen=True)
    assert status == 200
    expected = model.recommend([1, 99, 2, 99], 4, exclude_seen=True)
    assert [item for item, _ in pairs(answer)] == [item for item, _ in expected]
    assert dict(pairs(answer)) == pytest.approx(dict(expected), rel=1e-5)
    assert answer["unknown_items"] == [99]
    assert not answer["is_cold"]
    assert answer["model"]["window"] == "2026-01-01"
    assert answer["model"]["version"].startswith("2026-01-01-")


def test_filters_act_before_the_top_k(serve, load):
    client = serve()
    whole = load().recommend([1, 2], 100)
    allowed = [item for item, _ in whole[5:9]]
    _, answer = ask(client, session=[1, 2], top_k=3, allow=[*allowed, 99], deny=[allowed[0]])
    assert [item for item, _ in pairs(answer)] == allowed[1:]


@pytest.mark.parametrize("session", [[], [99, 98]])
def test_cold_sessions_are_answered_as_asked(serve, load, session):
    client, model = serve(), load()
    status, answer = ask(client, session=session, top_k=3)
    assert (status, answer["is_cold"]) == (200, True)
    assert answer["unknown_items"] == session
    assert pairs(answer) == model.recommend([99], 3, cold_start="popularity")
    status, answer = ask(client, session=session, cold_start="refuse")
    assert status == 422
    assert '"cold_start": "popularity"' in answer["error"]
    assert ask(serve(cold_start="refuse"), session=session)[0] == 422


EVENTS = [
    {"item_id": 1, "event_time": "2026-01-02T00:00:00Z", "category": 1, "price": 0.1},
    {"item_id": 2, "event_time": "2026-01-02T00:00:10", "category": 2, "price": None},
]


def test_events_carry_raw_features(serve, load):
    client, model = serve("gpt2", "clm", FEATURES), load("gpt2", "clm", FEATURES)
    status, answer = ask(client, events=EVENTS, top_k=100)
    assert status == 200
    table = model.events_with(
        {
            "item_id": [1, 2],
            "event_time": [1767312000000000, 1767312010000000],
            "category": [1, 2],
            "price": [0.1, None],
        }
    )
    assert dict(pairs(answer)) == pytest.approx(dict(model.recommend_after(table, 100)), rel=1e-5)
    status, answer = ask(client, session=[1, 2])
    assert status == 422
    assert "reads category, price besides the item id; send events" in answer["error"]


def test_a_null_item_is_an_unknown_one(serve, load):
    events = [{"item_id": item, "event_time": "2026-01-02T00:00:00Z"} for item in (1, None)]
    status, answer = ask(serve(), events=events, top_k=100)
    assert (status, answer["unknown_items"]) == (200, [None])
    expected = load().recommend([1, 99], 100)
    assert dict(pairs(answer)) == pytest.approx(dict(expected), rel=1e-5)


WITHOUT_PRICE = [{key: each[key] for key in each if key != "price"} for each in EVENTS]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give session, events, or the session_id of clicks sent to /events"),
        ({"session": [1], "events": EVENTS}, "give session or events, not both"),
        ({"session": [1], "past": EVENTS}, "past requires events"),
        ({"events": EVENTS, "past": EVENTS}, "reads no past events"),
        ({"session": [1], "top_k": 0}, "top_k: Input should be greater than or equal to 1"),
        *(
            ({"session": [1], "top_k": value}, "top_k: Input should be a valid integer")
            for value in (True, "5")
        ),
        *(
            (
                {"session": [1], "exclude_seen": value},
                "exclude_seen: Input should be a valid boolean",
            )
            for value in (1, "yes")
        ),
        *(
            ({"events": [{"item_id": 1, "event_time": time}]}, "events.0.event_time: ")
            for time in (True, "123", "\u0662026-01-02", None)
        ),
        ({"session": [1], "topk": 3}, "topk: unknown field; did you mean top_k?"),
        ({"sesion": [1], "exclude_sen": True}, "sesion: unknown field; did you mean session"),
        ({"sesion": [1], "exclude_sen": True}, "; exclude_sen: unknown field; did you mean excl"),
        ({"session": [1], "colour": 3}, "colour: unknown field; expected session, events, "),
        ({"session": [1], "explain": 1}, "explain: Input should be a valid boolean"),
        ({"session": [1], "explain": True}, "explain: gpt2 has no named features; leave it out"),
        ({"session": [1.5]}, "session.0: expected an integer or text"),
        ({"session": [True]}, "session.0: expected an integer or text"),
        ({"session": ["shoe"]}, "item id 'shoe': expected a 64-bit integer"),
        ({"session": [1], "allow": ["shoe"]}, "item id 'shoe'"),
        ({"session": [1], "deny": ["shoe"]}, "item id 'shoe'"),
        ({"session": [1], "cold_start": "guess"}, "cold_start: Input should be 'refuse'"),
        ({"events": [{"item_id": 1}]}, "events.0.event_time: Field required"),
        ({"events": [{"item_id": 1, "event_time": "9999-01-01"}]}, "an event at 9999-01-01"),
        ({"events": [{"item_id": 1, "event_time": -1}]}, "an event at 1969-12-31"),
    ],
)
def test_bad_requests_are_422_with_a_clear_text(serve, asked, message):
    status, answer = ask(serve(), **asked)
    assert status == 422
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (WITHOUT_PRICE, "price is missing"),
        ([EVENTS[0] | {"price": "dear"}], "price: expected values of type double"),
        ([EVENTS[0] | {"price": 10**400}], "price: expected values of type double"),
        ([EVENTS[0] | {"category": 1.5}], "category: expected values of type int64"),
    ],
)
def test_bad_features_are_422_with_a_clear_text(serve, events, message):
    status, answer = ask(serve("gpt2", "clm", FEATURES), events=events)
    assert status == 422
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"\ud800": 1}, r"\ud800: unknown field; expected session, events, "),
        ({"where": {"\ud800": ["x"]}}, "expected Unicode text without lone surrogates"),
        ({"where": {"brand": ["\ud800"]}}, "where.brand.0: expected Unicode text without lone"),
    ],
)
def test_text_that_is_no_unicode_is_422(serve, more, message):
    answer = serve().post("/recommend", content=json.dumps({"session": [1], **more}), headers=JSON)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_a_body_that_is_no_json_is_422_and_is_not_repeated(serve):
    answer = serve().post("/recommend", content=b'{"session": [secret', headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"] == "the body is not valid JSON (character 13)"
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("content", "headers"),
    [(b"[1]", JSON), (b'{"session": [1]}', {"content-type": "text/plain"})],
    ids=["a list", "another type"],
)
def test_a_body_that_is_no_json_object_names_what_to_send(serve, content, headers):
    answer = serve().post("/recommend", content=content, headers=headers)
    assert answer.status_code == 422
    assert "content-type: application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/recommend", b'{"session": ["\xff"]}', 400),
        ("POST", "/recommend", b"[" * 100_000, 400),
        ("GET", "/recommend", None, 405),
        ("GET", "/recommendations", None, 404),
    ],
    ids=["not UTF-8", "deep", "another method", "another path"],
)
def test_what_no_endpoint_can_read_has_an_error(serve, method, path, content, status):
    answer = serve().request(method, path, content=content, headers=JSON)
    assert answer.status_code == status
    assert [*answer.json()] == ["error"]


def test_a_batch_answers_each_and_one_bad_session_fails_no_other(serve, load):
    client, model = serve(), load()
    requests = [
        {"session": [1, 2], "top_k": 2},
        {"session": ["shoe"]},
        {"events": [{"item_id": 1, "event_time": "9999-12-31T23:59:59"}]},
        {"session": [], "cold_start": "refuse"},
        {"session": [3], "top_k": 4, "exclude_seen": True},
    ]
    answer = client.post("/recommend/batch", json={"requests": requests})
    assert answer.status_code == 200
    first, bad, late, cold, last = answer.json()["answers"]
    assert dict(pairs(first)) == pytest.approx(dict(model.recommend([1, 2], 2)), rel=1e-5)
    assert "'shoe'" in bad["error"]
    assert "expected event_time from 1970 to 2199" in late["error"]
    assert "knows no item" in cold["error"]
    expected = model.recommend([3], 4, exclude_seen=True)
    assert dict(pairs(last)) == pytest.approx(dict(expected), rel=1e-5)
    assert client.post("/recommend/batch", json={"requests": []}).status_code == 422


def test_state_and_metrics(serve):
    client = serve()
    ask(client, session=[1])
    ask(client, session=[])
    ask(client, session=[1], top_k=0)
    assert client.get("/health").json() == {"status": "ok"}
    ready = client.get("/ready")
    assert ready.status_code == 200
    version = ready.json()["model"]["version"]
    text = client.get("/metrics").text
    for line in (
        'dayahead_requests_total{endpoint="/recommend",status="200"} 2.0',
        'dayahead_requests_total{endpoint="/recommend",status="422"} 1.0',
        'dayahead_sessions_total{result="known"} 1.0',
        'dayahead_sessions_total{result="cold"} 1.0',
        f'dayahead_model{{version="{version}",window="2026-01-01"}} 1.0',
        "dayahead_batch_sessions_count 2.0",
    ):
        assert line in text
    assert re.search(r'dayahead_request_seconds_count\{endpoint="/recommend"\} 3\.0', text)


def test_the_root_says_what_answers(serve, monkeypatch):
    monkeypatch.setattr("dayahead.serve.http.version", lambda _name: "7.8.9")
    client = serve()
    about = client.get("/").json()
    assert about["name"] == "dayahead"
    assert about["version"] == "7.8.9"
    assert about["model"] == client.get("/ready").json()["model"]
    described = client.get("/openapi.json").json()
    assert described["info"]["version"] == about["version"]
    paths = described["paths"]
    listed = [name.split() for name in about["endpoints"] if name != "GET /openapi.json"]
    assert {path: [*methods] for path, methods in paths.items()} == {
        path: [method.lower()] for method, path in listed
    }
    assert all(about["endpoints"].values())


def test_explained_items_carry_their_strongest_evidence(serve, load):
    client, model = serve("memory"), load("memory")
    _, answer = ask(client, session=[1, 2], top_k=5, explain=True)
    expected = model.explain(model.events_of([1, 2]), [item for item, _ in pairs(answer)])
    for item, parts in zip(answer["items"], expected, strict=True):
        strongest = sorted(parts.items(), key=lambda part: -abs(part[1]))[:3]
        assert [*item["evidence"].items()] == [
            (name, pytest.approx(value, abs=1e-5)) for name, value in strongest
        ]
    _, plain = ask(client, session=[1, 2], top_k=5)
    assert pairs(plain) == pairs(answer)
    assert {*plain["items"][0]} == {"item", "score"}
    _, cold = ask(client, session=[99], top_k=2, explain=True)
    assert [each["evidence"] for each in cold["items"]] == [{}, {}]


def test_a_batch_explains_the_sessions_that_ask_for_it(serve):
    requests = [{"session": [1], "explain": True}, {"session": [2]}]
    answer = serve("memory").post("/recommend/batch", json={"requests": requests})
    found = [["evidence" in item for item in each["items"]] for each in answer.json()["answers"]]
    assert [all(found[0]), any(found[1])] == [True, False]


def test_a_reload_that_fails_in_any_way_is_not_the_last(saved_model, monkeypatch):
    source = ModelSource(saved_model())
    service = Service(source, "popularity", 0.01)
    outcomes = iter([RuntimeError("can't start new thread"), IndexError(), source.load()])
    is_served = threading.Event()

    def load_if_new():
        outcome = next(outcomes, None)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            is_served.set()
        return outcome

    monkeypatch.setattr(source, "load_if_new", load_if_new)
    with TestClient(create_app(service)) as client:
        assert is_served.wait(60)
        text = client.get("/metrics").text
    assert 'dayahead_reloads_total{result="refused"} 2.0' in text
    assert 'dayahead_reloads_total{result="served"} 1.0' in text


def test_a_service_that_has_ended_is_not_ready(saved_model):
    service = Service(ModelSource(saved_model()), "popularity", 1000)
    assert not service.is_ready
    with TestClient(create_app(service)):
        assert service.is_ready
    assert not service.is_ready


def test_an_overload_is_503(serve, monkeypatch):
    monkeypatch.setattr(Room, "is_free", lambda _room, _waiting, cost: cost < 20)
    client = serve()
    assert ask(client, session=[1], top_k=3)[0] == 200
    answer = client.post("/recommend/batch", json={"requests": [{"session": [1]}] * 2})
    assert answer.status_code == 503
    assert "ask again later" in answer.json()["error"]
    assert answer.headers["retry-after"] == "1"
