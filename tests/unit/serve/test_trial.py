"""Two models in one service: which sessions each answers, and what is logged of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dayahead.core.errors import ConfigError, ScoreError
from dayahead.live.clock import Clock
from dayahead.live.list_log import LISTS, N_LOGGED, ListLog
from dayahead.serve.http import create_app
from dayahead.serve.model_source import ModelSource
from dayahead.serve.recommender import Recommender
from dayahead.serve.service import Service
from dayahead.serve.trial import A, B, Trial

NAMES = [f"s-{number}" for number in range(2000)]


def trial_of(share):
    return Trial(None, share)


@given(st.text(max_size=20), st.floats(0.01, 0.98), st.floats(0.001, 0.01))
def test_who_is_in_b_stays_there_as_the_share_grows(session, share, more):
    assert trial_of(share).variant_of(session) in {A, B}
    if trial_of(share).variant_of(session) == B:
        assert trial_of(share + more).variant_of(session) == B


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_b_gets_its_share(share):
    n_b = sum(trial_of(share).variant_of(name) == B for name in NAMES)
    # Five deviations of a binomial count.
    assert abs(n_b - share * 2000) < 5 * (2000 * share * (1 - share)) ** 0.5
    assert trial_of(share).variant_of(None) == A


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_each_model_has_a_share(share):
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        trial_of(share)


@pytest.fixture
def logged(saved_model, tmp_path):
    """Client of a service of two models, and a function that closes it and returns its lists."""
    path = tmp_path / "live" / "lists.sqlite"
    lists = ListLog(path, Clock(), 3600)
    sources = [ModelSource(saved_model(name)) for name in ("transitions", "gpt2")]
    trial = Trial(sources[1], 0.5)
    service = Service(sources[0], "popularity", 0.05, trial=trial, lists=lists)
    with TestClient(create_app(service)) as client:

        def ended():
            client.__exit__(None, None, None)
            lists.close()
            with LISTS.reading(path) as connection:
                return connection.execute(
                    "SELECT session, user, variant, model, items FROM lists ORDER BY position"
                ).fetchall()

        client.ended, client.service = ended, service
        yield client


def test_each_session_is_answered_by_its_model_and_its_list_is_logged(logged, saved_model):
    folders = {A: saved_model("transitions"), B: saved_model("gpt2")}
    models = {name: Recommender.load(folder) for name, folder in folders.items()}
    about = logged.get("/").json()["model"]
    versions = {A: about["version"], B: about["against"]}
    requests = [{"session": [1, 2], "session_id": name, "top_k": 3} for name in NAMES[:20]]
    answers = logged.post("/recommend/batch", json={"requests": requests}).json()["answers"]
    expected = []
    for name, answer in zip(NAMES[:20], answers, strict=True):
        variant = trial_of(0.5).variant_of(name)
        items = [item for item, _ in models[variant].recommend([1, 2], 3)]
        assert [each["item"] for each in answer["items"]] == items
        assert answer["model"]["version"] == versions[variant]
        expected.append((name, None, variant, versions[variant], json.dumps(items)))
    assert {row[2] for row in expected} == {A, B}
    assert logged.ended() == expected


def fail(*_):
    raise ScoreError("scores are not finite")


def test_what_the_model_on_trial_cannot_answer_the_other_does(logged, monkeypatch, caplog):
    about = logged.get("/").json()["model"]
    requests = [{"session": [1, 2], "session_id": name, "top_k": 3} for name in NAMES[:20]]
    n_b = sum(trial_of(0.5).variant_of(name) == B for name in NAMES[:20])

    def versions():
        answers = logged.post("/recommend/batch", json={"requests": requests}).json()["answers"]
        return [each["model"]["version"] for each in answers]

    before, tried = versions(), logged.service.models[B].recommender
    with monkeypatch.context() as patch:
        patch.setattr(type(tried), "rank", failing_for(tried))
        assert [*versions(), *versions()] == 40 * [about["version"]]
    assert caplog.text.count("answers its sessions") == 1
    assert f"{about['against']} on trial has failed" in caplog.text
    assert versions() == before != 20 * [about["version"]]
    text = logged.get("/metrics").text
    assert f"dayahead_fallbacks_total {2 * n_b}.0" in text
    assert logged.get("/ready").status_code == 200
    rows = logged.ended()
    assert [row[2] for row in rows[20:60]] == 40 * [A]
    assert {row[3] for row in rows if row[2] == A} == {about["version"]}


def failing_for(recommender):
    """`Recommender.rank`, which fails for one of them."""
    rank = Recommender.rank
    return lambda own, *given: fail() if own is recommender else rank(own, *given)


def test_a_request_that_no_model_answers_fails_alone(logged, monkeypatch):
    """With A too: there is no third model."""
    with monkeypatch.context() as patch:
        patch.setattr(Recommender, "rank", fail)
        with pytest.raises(ScoreError):
            logged.post("/recommend", json={"session": [1], "session_id": NAMES[0]})
    assert logged.post("/recommend", json={"session": [1]}).status_code == 200


def test_what_cannot_be_joined_is_counted_and_not_logged(logged):
    logged.post("/recommend", json={"session": [1]})
    logged.post("/recommend", json={"session": [1], "session_id": "s", "cold_start": "guess"})
    logged.post("/recommend", json={"session": ["shoe"], "session_id": "s"})
    logged.post("/recommend", json={"session": [1], "session_id": "s", "user_id": "u", "top_k": 99})
    text = logged.get("/metrics").text
    assert 'dayahead_lists_total{result="unnamed"} 1.0' in text
    assert 'dayahead_lists_total{result="logged"} 1.0' in text
    assert text.count("dayahead_model{") == 2
    [(session, user, *_, items)] = logged.ended()
    assert (session, user) == ("s", "u")
    assert len(json.loads(items)) == min(N_LOGGED, 15)


def test_the_model_on_trial_is_replaced_too(saved_model, tmp_path):
    (tmp_path / "b").symlink_to(saved_model("popularity"))
    trial = Trial(ModelSource(tmp_path / "b"), 0.5)
    service = Service(ModelSource(saved_model("transitions")), "popularity", 0.05, trial=trial)
    with TestClient(create_app(service)) as client:
        before = client.get("/ready").json()["model"]
        (tmp_path / "new").symlink_to(saved_model("gpt2"))
        (tmp_path / "new").replace(tmp_path / "b")
        for _ in range(200):
            after = client.get("/ready").json()["model"]
            if after["against"] != before["against"]:
                break
        else:
            pytest.fail("not replaced")
    assert after["version"] == before["version"]
