"""The model as MLflow serves it."""

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dayahead.core.errors import DataError
from dayahead.serve import pyfunc
from dayahead.serve.pyfunc import ServedModel
from dayahead.serve.recommender import Recommender
from dayahead.tracking.model_package import SIGNATURE, package_model
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


def test_the_signature_has_every_option_of_recommend():
    """MLflow drops a parameter that the signature lacks."""
    named = {each.name: each.default for each in SIGNATURE.params.params}
    options = inspect.signature(Recommender.recommend).parameters.values()
    of_code = {each.name: each.default for each in options if each.kind == each.KEYWORD_ONLY}
    assert named == {"top_k": 10, **of_code}


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
