"""POST /similar: what `similar` finds, limits, errors, and a model that counts between two fits."""

import pytest

from dayahead.core.errors import ConfigError, DataError
from dayahead.serve.answers import answer_requests
from dayahead.serve.messages import Answer, SessionRequest, SimilarAnswer, SimilarRequest
from dayahead.serve.model_source import LoadedModel
from dayahead.serve.request import Options
from dayahead.serve.similar import SimilarItems
from support.live_services import live_client
from support.live_windows import WITH_GPT2, spread_sessions
from support.tiny_settings import merge_sections, train_study
from support.window_folders import markov_days, write_window_folder


def ask(client, **body):
    answer = client.post("/similar", json=body)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("name", ["gpt2", "memory"])
def test_an_item_gets_what_similar_finds(serve, load, name):
    client, finder = serve(name), SimilarItems(load(name))
    status, answer = ask(client, item=3, top_k=4, deny=[1])
    [expected] = finder.find([3], Options(top_k=4, deny=[1]))
    assert status == 200
    assert [(each["item"], each["score"]) for each in answer["items"]] == expected
    assert answer["by"] == finder.description()
    assert answer["model"]["window"] == "2026-01-01"
    assert ask(client, item="3", top_k=4, deny=[1])[1] == answer
    assert 'dayahead_requests_total{endpoint="/similar",status="200"} 2.0' in (
        client.get("/metrics").text
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "item: Field required"),
        ({"item": None}, "item: expected an integer or text"),
        ({"item": True}, "item: expected an integer or text"),
        ({"item": 77}, "item 77: the model does not know it; "),
        ({"item": "shoe"}, "item id 'shoe': expected a 64-bit integer"),
        ({"item": 1, "by": "vectors"}, "memory compares items by pairs"),
        ({"item": 1, "by": "looks"}, "by: Input should be 'vectors' or 'pairs'"),
        ({"item": 1, "allow": ["shoe"]}, "item id 'shoe'"),
        ({"item": 1, "topk": 3}, "topk: unknown field; did you mean top_k?"),
        ({"item": 1, "top_k": 6}, "top_k: 6; expected at most 5 (dayahead serve --max-top-k)"),
        ({"item": 1, "allow": [1] * 20}, "entries"),
    ],
)
def test_bad_requests_are_422_with_a_clear_text(serve, body, message):
    status, answer = ask(serve("memory", top_k=5, entries=20), **{"top_k": 2, **body})
    assert status == 422
    assert message in answer["error"]


def test_sessions_and_items_are_answered_together(load):
    model = LoadedModel(load("memory"), "v")
    requests = [
        SimilarRequest(item=3),
        SessionRequest(session=[1, 2]),
        SimilarRequest(item=77),
        SimilarRequest(item=3, by="vectors"),
        SessionRequest(session=["shoe"]),
    ]
    kinds = [type(each) for each in answer_requests(model, requests, "popularity")]
    assert kinds == [SimilarAnswer, Answer, DataError, ConfigError, DataError]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    windows = tmp_path_factory.mktemp("windows")
    days = markov_days(n_days=3, sessions_per_day=20, n_items=30)
    spread_sessions(write_window_folder(windows, days, features=True))
    study = merge_sections(WITH_GPT2, training={"fit_last": False})
    return train_study(windows, tmp_path_factory.mktemp("study"), study) / "models"


@pytest.mark.long
def test_an_item_that_is_new_since_the_fit_has_pairs_from_the_next_tick_on(models, tmp_path):
    def event(name, item, when, session):
        time = f"2026-01-03T00:{when}"
        return {"event_id": name, "session_id": session, "item_id": item, "event_time": time}

    with live_client(models, tmp_path / "events.sqlite") as live:
        live.send(event("a", 1, "00:01", "s"), event("b", 777, "00:02", "s"))
        assert ask(live.client, item=777)[0] == 422
        before = ask(live.client, item=1, by="vectors")
        live.send(event("c", 2, "30:00", "t"))
        status, answer = ask(live.client, item=777)
        assert (status, [each["item"] for each in answer["items"]]) == (200, [1])
        assert 777 in [each["item"] for each in ask(live.client, item=1, top_k=100)[1]["items"]]
        assert ask(live.client, item=1, by="vectors") == before
        status, answer = ask(live.client, item=777, by="vectors")
        assert status == 422
        assert "newer than the last fit" in answer["error"]
