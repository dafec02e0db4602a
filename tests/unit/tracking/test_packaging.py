import mlflow.pyfunc
import pandas as pd
import pytest
from mlflow import MlflowException

from dayahead.tracking.packaging import pack_model
from dayahead.tracking.runs import stage_run
from support.tracked_stages import runs_of

CODE = """
from pathlib import Path
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

class Echo(PythonModel):
    def load_context(self, context):
        self.word = (Path(context.artifacts["model"]) / "word.txt").read_text()

    def predict(self, context, model_input, params=None):
        return [
            [{"item": self.word + item, "score": 1.0} for item in session.split(",")]
            [: params["top_k"]]
            for session in model_input["session"]
        ]

set_model(Echo())
"""


@pytest.fixture
def model(cold_project):
    (cold_project / "models").mkdir()
    (cold_project / "models/word.txt").write_text("item ")
    (cold_project / "echo.py").write_text(CODE)
    return cold_project / "models", cold_project / "echo.py"


def test_a_packed_model_is_loaded_without_a_pickle(model, tmp_path):
    packed = pack_model(tmp_path / "packed", *model, "1,2")
    assert not [*packed.rglob("*.pkl")]
    loaded = mlflow.pyfunc.load_model(str(packed))
    sessions = pd.DataFrame({"session": ["1,2,3"]})
    assert loaded.predict(sessions, params={"top_k": 2}) == [
        [{"item": "item 1", "score": 1.0}, {"item": "item 2", "score": 1.0}]
    ]
    assert len(loaded.predict(sessions)[0]) == 3


def test_a_packed_model_refuses_other_columns(model, tmp_path):
    loaded = mlflow.pyfunc.load_model(str(pack_model(tmp_path / "packed", *model, "1,2")))
    with pytest.raises(MlflowException, match="session"):
        loaded.predict(pd.DataFrame({"items": ["1"]}))


def test_the_model_is_found_from_its_run(store, params, model):
    with stage_run("train", params) as run:
        run.log_model(*model, "1,2")
    (train,) = runs_of(store)["train"]
    mlflow.set_tracking_uri(store.uri)
    try:
        loaded = mlflow.pyfunc.load_model(f"runs:/{train.info.run_id}/model")
    finally:
        mlflow.set_tracking_uri(None)
    assert loaded.predict(pd.DataFrame({"session": ["7"]}))[0][0]["item"] == "item 7"
    assert loaded.metadata.signature.params.to_dict()[0]["default"] == 10
