import runpy
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dayahead.serve.recommender import Recommender

REPOSITORY = Path(__file__).parents[3]


class Echo:
    """Recommends what it was given, newest first."""

    def recommend(self, items, top_k):
        return [(item, 1.0 / place) for place, item in enumerate(reversed(items), 1)][:top_k]


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(Recommender, "load", classmethod(lambda _cls, folder: Echo()))
    code = runpy.run_path(str(REPOSITORY / "stages/served_model.py"))
    model = code["ServedModel"]()
    model.load_context(SimpleNamespace(artifacts={"model": "models"}))
    return model


def test_rows_are_sessions_of_raw_ids(served):
    sessions = pd.DataFrame({"session": ["1, 2", "c"]})
    assert served.predict(None, sessions, {"top_k": 1}) == [
        [{"item": "2", "score": 1.0}],
        [{"item": "c", "score": 1.0}],
    ]
    assert len(served.predict(None, sessions)[0]) == 2
