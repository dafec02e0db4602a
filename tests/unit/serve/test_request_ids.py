"""Ids of requests: in answers of every status, and in the log."""

import logging
import re

import pytest
from starlette.testclient import TestClient

from dayahead.serve.http import create_app
from dayahead.serve.model_source import ModelSource
from dayahead.serve.request_ids import add_request_id
from dayahead.serve.service import Service


@pytest.fixture(scope="module")
def client(saved_model):
    service = Service(ModelSource(saved_model("transitions")), "popularity", 1000)
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        yield client


def id_of(answer):
    return answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/recommend", {"session": [1]}, 200),
        ("/recommend", {"session": ["shoe"]}, 422),
        ("/nowhere", {}, 404),
    ],
)
def test_an_id_that_is_given_comes_back(client, path, body, status):
    answer = client.post(path, json=body, headers={"X-Request-ID": "shop-17/a"})
    assert (answer.status_code, id_of(answer)) == (status, "shop-17/a")


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "caf\xe9"])
def test_an_id_that_no_log_should_repeat_is_replaced(client, given):
    headers = {"X-Request-ID": given.encode("latin-1")}
    found = {id_of(client.get("/health", headers=headers)) for _ in range(2)}
    assert len(found) == 2
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in found)


def test_a_body_that_is_refused_before_it_is_read_has_an_id(client):
    answer = client.post("/recommend", content=b"x", headers={"content-encoding": "gzip"})
    assert (answer.status_code, len(id_of(answer))) == (415, 16)


def test_the_log_names_the_request_that_failed(client, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("torn")

    monkeypatch.setattr("dayahead.serve.service.answer_requests", fail)
    handler = logging.StreamHandler()
    handler.addFilter(add_request_id)
    handler.setFormatter(logging.Formatter("%(message)s%(request)s"))
    logging.getLogger().addHandler(handler)
    try:
        answer = client.post("/recommend", json={"session": [1]}, headers={"X-Request-ID": "r-7"})
        logging.getLogger().warning("between requests")
    finally:
        logging.getLogger().removeHandler(handler)
    assert (answer.status_code, id_of(answer)) == (500, "r-7")
    said = capsys.readouterr().err
    assert "a request failed (request r-7)\n" in said
    assert "between requests\n" in said
