"""What a request may ask for is bounded by the work it makes."""

import json
import time
import tracemalloc

import pytest
from starlette.testclient import TestClient

from dayahead.core.errors import ConfigError
from dayahead.serve.http import create_app
from dayahead.serve.limits import Limits
from dayahead.serve.model_source import ModelSource
from dayahead.serve.service import Service

JSON = {"content-type": "application/json"}
EVENT = {"item_id": 1, "event_time": "2026-01-02T00:00:00Z"}


def ask(client, *requests):
    answer = client.post("/recommend/batch", json={"requests": requests})
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("limits", "request_", "message"),
    [
        ({"sessions": 1}, {"session": [1]}, "2 sessions"),
        ({"events": 2}, {"session": [1, 2, 3]}, "requests.1.session: 3 events"),
        ({"events": 2}, {"events": [EVENT] * 3}, "requests.1.events: 3 events"),
        ({"events": 2}, {"events": [], "past": [EVENT] * 3}, "requests.1.past: 3 events"),
        ({"fields": 4}, {"events": [EVENT, EVENT | dict.fromkeys("abc")]}, "events.1: 5 fields"),
        ({"top_k": 5}, {"session": [1], "top_k": 6}, "requests.1.top_k: 6"),
        ({"entries": 20}, {"session": [1] * 15, "top_k": 5}, "23 entries"),
        ({"entries": 20}, {"events": [], "past": [EVENT] * 15, "top_k": 5}, "23 entries"),
        ({"entries": 20}, {"session": [], "top_k": 3, "deny": [1] * 9, "allow": [1] * 9}, "24 ent"),
    ],
)
def test_more_than_a_limit_is_422_and_names_the_option(serve, limits, request_, message):
    client = serve(**limits)
    first = {"session": [], "top_k": 1}
    status, answer = ask(client, first, request_)
    assert status == 422
    assert message in answer["error"]
    option = "--max-" + {"top_k": "top-k"}.get(*limits, *limits)
    assert option in answer["error"]
    assert ask(client, first)[0] == 200


def test_no_more_items_count_than_the_catalogue_has(serve):
    """15 items: a client that always asks for many may do so."""
    status, answer = ask(serve(entries=40), *[{"session": [1], "top_k": 10_000}] * 2)
    assert status == 200
    assert [len(each["items"]) for each in answer["answers"]] == [15, 15]


def test_an_answer_is_limited_in_bytes(serve):
    client = serve(answer_bytes=2_000)
    assert ask(client, {"session": [1], "top_k": 10})[0] == 200
    status, answer = ask(client, *[{"session": [1], "top_k": 15}] * 5)
    assert status == 422
    assert "--max-answer-mib" in answer["error"]
    # The unknown items that an answer repeats count, too.
    answer = client.post("/recommend", json={"session": [*range(10**9, 10**9 + 500)]})
    assert answer.status_code == 422
    assert "--max-answer-mib" in answer.json()["error"]


def test_names_that_the_model_does_not_read_cost_no_work(serve):
    """Each of 1,000 events has 50 names of its own: 50,000 columns, were they all taken."""
    events = [EVENT | {f"{row}-{n}": n for n in range(50)} for row in range(1_000)]
    client = serve()
    started = time.process_time()
    tracemalloc.start()
    answer = client.post("/recommend", json={"events": events})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 200
    assert time.process_time() - started < 10
    assert most < 100 * 2**20


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        {"requests": [{"session": [None] * 200_000}]},
        {"requests": [{}] * 200_000},
        {f"n{n}": 1 for n in range(100_000)},
    ],
    ids=["items", "sessions", "fields of a batch"],
)
def test_many_faults_cost_no_more_than_one(serve, body):
    client, text = serve(), json.dumps(body)
    tracemalloc.start()
    answer = client.post("/recommend/batch", content=text, headers=JSON)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 422
    assert len(answer.content) < 1_000
    assert most < 60 * 2**20


def test_a_long_name_is_not_repeated_whole(serve):
    answer = serve().post("/recommend", json={"session": [1], "x" * 100_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 1_000


@pytest.mark.parametrize("content", [b" " * 201, [b" " * 200, b" "]], ids=["whole", "in parts"])
def test_a_large_body_is_413_with_an_error(serve, content):
    client = serve(body_bytes=200)
    answer = client.post("/recommend", content=content, headers=JSON)
    assert answer.status_code == 413
    assert [*answer.json()] == ["error"]
    assert "--max-body-mib" in answer.json()["error"]
    assert answer.headers["connection"] == "close"
    assert client.post("/recommend", json={"session": [1]}).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/nothing"])
def test_a_large_body_is_413_where_none_is_read(serve, path):
    client = serve(body_bytes=200)
    assert client.request("GET", path, content=b" " * 201).status_code == 413


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_an_encoded_body_is_415(serve, encoding):
    headers = JSON | {"content-encoding": encoding}
    answer = serve().post("/recommend", content=b'{"session": [1]}', headers=headers)
    assert answer.status_code == 415
    assert "Content-Encoding" in answer.json()["error"]
    assert answer.headers["accept-encoding"] == "identity"


def test_a_body_that_says_it_is_not_encoded_is_read(serve):
    headers = JSON | {"content-encoding": "Identity"}
    answer = serve().post("/recommend", content=b'{"session": [1]}', headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_number_is_422(serve, number):
    body = f'{{"session": [1], "top_k": {number}}}'
    answer = serve().post("/recommend", content=body, headers=JSON)
    assert answer.status_code == 422
    assert "not valid JSON" in answer.json()["error"]


def test_an_error_of_our_own_is_500_in_json(saved_model, monkeypatch):
    service = Service(ModelSource(saved_model()), "popularity", 1000)
    monkeypatch.setattr(type(service.metrics), "text", lambda _self: 1 / 0)
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 500
    assert [*answer.json()] == ["error"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"entries": 600_000}, "--max-entries 600000"),
        ({"sessions": 0}, "sessions"),
        ({"request_seconds": 0}, "request_seconds"),
        ({"answer_seconds": float("nan")}, "answer_seconds is nan"),
        ({"answer_seconds": float("inf")}, "answer_seconds is inf"),
    ],
)
def test_limits_that_cannot_be_are_one_clear_error(limits, message):
    with pytest.raises(ConfigError, match=message):
        Limits(**limits)
