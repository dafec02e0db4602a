"""The model as MLflow serves it."""

import inspect
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import mlflow.pyfunc
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from mlflow.pyfunc import scoring_server

from dayahead.core.errors import DataError
from dayahead.serve import pyfunc
from dayahead.serve.pyfunc import ServedModel
from dayahead.serve.recommender import Recommender
from dayahead.tracking.model_package import interface_of, package_model
from dayahead.tracking.runs import PACKAGE
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder


class Echo:
    """Recommends what it was given, newest first."""

    def recommend(self, items, top_k, cold_start="refuse", exclude_seen=False):
        if items == ["unknown"]:
            raise DataError("no item is known")
        if exclude_seen:
            return [(cold_start, 1.0)]
        return [(item, 1.0 / rank) for rank, item in enumerate(reversed(items), 1)][:top_k]


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(Recommender, "load", classmethod(lambda _cls, folder: Echo()))
    model = ServedModel()
    model.load_context(SimpleNamespace(artifacts={"model": "models"}))
    return model


@pytest.mark.parametrize(
    ("bad", "message"), [("unknown", "no item"), (",", "no item id"), ('"1', "quotes")]
)
def test_one_bad_row_fails_no_other(model, bad, message):
    sessions = pd.DataFrame({"session": ["1", bad, '"2,3"']})
    first, [error], last = model.predict(None, sessions)
    assert message in error["error"]
    assert first == [{"item": "1", "score": 1.0}]
    assert last == [{"item": "2,3", "score": 1.0}]


def test_rows_are_sessions_of_raw_ids(model):
    sessions = pd.DataFrame({"session": ["1, 2", "c"]})
    assert model.predict(None, sessions, {"top_k": 1}) == [
        [{"item": "2", "score": 1.0}],
        [{"item": "c", "score": 1.0}],
    ]
    assert len(model.predict(None, sessions)[0]) == 2


def test_options_reach_the_model(model):
    session, options = pd.DataFrame({"session": ["1"]}), {"cold_start": "popularity"}
    answer = [{"item": "popularity", "score": 1.0}]
    assert model.predict(None, session, {**options, "exclude_seen": True}) == [answer]


FEATURES = ("category", "price")
EVENTS = [
    {"item_id": 1, "event_time": "2026-01-02T00:00:00Z", "category": 1, "price": 0.5},
    {"item_id": 2, "event_time": "2026-01-02T00:00:10", "category": 2, "price": 2},
]


def served(folder):
    model = ServedModel()
    model.load_context(SimpleNamespace(artifacts={"model": str(folder)}))
    return model


def expected_after(recommender, events, **options):
    """The answer to events, whose times all have the zone UTC."""
    times = [datetime.fromisoformat(each["event_time"]).replace(tzinfo=UTC) for each in events]
    columns = {name: [each[name] for each in events] for name in events[0]}
    table = recommender.events_with(columns | {"event_time": times})
    return recommender.recommend_after(table, 3, **options)


def pairs(row):
    return [(each["item"], each["score"]) for each in row]


def test_models_with_features_read_events(saved_model, load):
    model = served(saved_model("gpt2", "clm", FEATURES))
    recommender = load("gpt2", "clm", FEATURES)
    for options in ({}, {"exclude_seen": True}):
        [row] = model.predict(None, pd.DataFrame({"events": [EVENTS]}), {"top_k": 3, **options})
        expected = expected_after(recommender, EVENTS, **options)
        assert dict(pairs(row)) == pytest.approx(dict(expected))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (None, "session is empty"),
        (float("nan"), "session is empty"),
        ([{"item_id": 1}], "events.0.event_time: Field required"),
        ([{**EVENTS[0], "event_time": "+5"}], "events.0.event_time: expected a date"),
        ([{"item_id": 1, "event_time": "2026-01-02"}], "events: category, price is missing"),
        ([{**EVENTS[0], "price": "dear"}], "price: expected values of type double"),
    ],
)
def test_bad_events_fail_no_other_row(saved_model, events, message):
    model = served(saved_model("gpt2", "clm", FEATURES))
    [bad], good = model.predict(None, pd.DataFrame({"events": [events, EVENTS]}))
    assert message in bad["error"]
    assert len(good) == 10


def test_past_events_are_read_where_a_row_has_them(saved_model, load):
    model = served(saved_model("gpt2", "clm", ("price",)))
    rows = pd.DataFrame({"events": [EVENTS, EVENTS], "past": [None, EVENTS]})
    good, [bad] = model.predict(None, rows)
    assert len(good) == 10
    assert "reads no past events" in bad["error"]


def config_with(folder, **model):
    """A copy of a saved model's config.json with other settings."""
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= model
    return config


@pytest.mark.parametrize("past_length", [0, 5])
def test_the_signature_names_what_the_model_reads(saved_model, tmp_path, past_length):
    config = config_with(saved_model("gpt2", "clm", FEATURES), past_length=past_length)
    (tmp_path / "config.json").write_text(json.dumps(config))
    signature, _ = interface_of(tmp_path)
    [events, *past] = signature.inputs.inputs
    names = {each.name: each.required for each in events.type.dtype.properties}
    assert names == {"item_id": True, "event_time": True, "category": False, "price": False}
    assert [each.name for each in past] == ["past"] * bool(past_length)
    assert not any(each.required for each in past)
    of_ids, _ = interface_of(saved_model())
    assert [each.name for each in of_ids.inputs.inputs] == ["session"]


def test_the_signature_has_every_option_of_recommend(saved_model):
    """MLflow drops a parameter that the signature lacks."""
    signature, _ = interface_of(saved_model())
    named = {each.name: each.default for each in signature.params.params}
    options = inspect.signature(Recommender.recommend).parameters.values()
    of_code = {each.name: each.default for each in options if each.kind == each.KEYWORD_ONLY}
    del of_code["where"]  # a mapping, which no parameter of MLflow can be
    assert named == {"top_k": 10, **of_code}


@pytest.mark.slow
def test_mlflow_serves_a_model_with_features(saved_model, load, tmp_path):
    models = saved_model("gpt2", "clm", FEATURES)
    package = package_model(tmp_path / "package", models, Path(pyfunc.__file__), PACKAGE)
    client = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(package))))
    asked = {"dataframe_records": [{"events": EVENTS}], "params": {"top_k": 3}}
    answer = client.post("/invocations", json=asked)
    assert answer.status_code == 200, answer.text
    expected = expected_after(load("gpt2", "clm", FEATURES), EVENTS)
    assert dict(pairs(answer.json()["predictions"][0])) == pytest.approx(dict(expected))


LOAD = """
import json, sys
import mlflow.pyfunc, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
import dayahead
found = model.predict(pandas.DataFrame({"session": ["1,2", "?"]}), params={"top_k": 3})
print(json.dumps([dayahead.__file__, found]))
"""


@pytest.mark.slow
def test_the_packaged_model_needs_nothing_but_its_folder(tmp_path):
    days = markov_days(n_days=2, sessions_per_day=20, n_items=15)
    folder = write_window_folder(tmp_path / "windows", days)
    train_study(folder, tmp_path, {"training": {"fit_last": False}})
    package = package_model(
        tmp_path / "package", tmp_path / "models", Path(pyfunc.__file__), PACKAGE
    )
    assert not [*package.rglob("*.pkl")]
    expected = Recommender.load(tmp_path / "models").recommend([1, 2], 3)
    shutil.rmtree(tmp_path / "models")
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, str(package)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    source, [found, [bad]] = json.loads(done.stdout.splitlines()[-1])
    assert "'?'" in bad["error"]
    assert source.startswith(str(package))
    assert [each["item"] for each in found] == [item for item, _ in expected]
    assert [each["score"] for each in found] == pytest.approx([score for _, score in expected])
