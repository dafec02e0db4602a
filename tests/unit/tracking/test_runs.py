import json
import logging
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowException

from dayahead.tracking.experiment_view import EXPERIMENT_TAGS, VIEW
from dayahead.tracking.model_package import package_model
from dayahead.tracking.outbox import outboxes
from dayahead.tracking.runs import PACKAGE, stage_run
from dayahead.tracking.sync import sync_all
from support.tracked_stages import points_of, run_stage, runs_of, window

PRIMARY = "mlflow.experiment.primaryMetric.name"


@pytest.mark.long
def test_the_stages_of_a_pipeline_run_share_a_parent(store):
    for stage in ("download", "train", "aggregate"):
        assert run_stage(stage) == (0, "")
    runs = runs_of(store)
    (parent,) = runs.pop("pipeline")
    assert {stage: len(nested) for stage, nested in runs.items()} == {
        "download": 1,
        "train": 1,
        "aggregate": 1,
    }
    for stage, (nested,) in runs.items():
        assert nested.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert nested.data.tags["dvc.exp_name"] == "lofty-sail"
        assert parent.data.tags[f"lineage.{stage}"] == nested.info.run_id
    assert parent.data.params["model.n_layer"] == "2"
    assert parent.data.params["evaluation.cutoffs"] == "[10, 20]"
    assert "window.unit" not in runs["train"][0].data.params
    assert set(runs["download"][0].data.params) == {"dataset"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("fate", "code", "status", "error"),
    [
        ("raise", 1, "FAILED", "train: ValueError: on purpose"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("refuse", 1, "FAILED", "train: tcp://***@host is missing"),
                ("terminate", 143, "KILLED", "train: stopped by SIGTERM"),
            )
        ),
        ("kill", -9, "KILLED", "train: killed"),
    ],
)
def test_a_failed_stage_gets_its_status_and_error(store, fate, code, status, error):
    assert run_stage("train", fate)[0] == code
    sync_all()  # of a killed stage nobody but the next one can tell
    runs = runs_of(store)
    for run in (runs["train"][0], runs["pipeline"][0]):
        assert run.info.status == status
        assert run.data.tags["error"] == error
        note = f"**{status.capitalize()}.** {error}\n\nRestore with `dvc exp apply lofty-sail`."
        assert run.data.tags["mlflow.note.content"] == note
    assert len(points_of(store, runs["train"][0])) == 3


@pytest.mark.long
@pytest.mark.parametrize("fate", [pytest.param("raise", marks=pytest.mark.slow), "kill"])
def test_a_restarted_stage_logs_what_is_missing(store, fate):
    run_stage("train", fate)
    assert run_stage("train")[0] == 0
    runs = runs_of(store)
    (train,), (parent,) = runs["train"], runs["pipeline"]
    assert points_of(store, train) == points_of(store, parent)
    assert [step for step, _ in points_of(store, train)] == [0, 1, 2, 3]
    for run in (train, parent):
        assert run.info.status == "FINISHED"
        assert "error" not in run.data.tags
        assert run.data.tags["mlflow.note.content"] == "Restore with `dvc exp apply lofty-sail`."


def test_an_experiment_opens_in_the_view_of_model_training(store):
    tags = store.client.get_experiment(store.experiment_id("new")).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    older = store.client.create_experiment("older", tags={PRIMARY: "aod_mrr_at_20"})
    tags = store.client.get_experiment(store.experiment_id("older")).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    assert tags[PRIMARY] == "aod_mrr_at_20"
    assert older == store.experiment_id("older")
    page = f"/#/experiments/{older}/runs?workflowType=machine_learning"
    assert store.page_of("older") == f"{page}&viewStateShareKey={VIEW}"
    assert store.page_of("older", compared=True) == (
        f"{page}&compareRunsMode=CHART&viewStateShareKey={VIEW}"
    )


def test_the_view_compares_averages_in_order_then_the_settings_that_differ():
    view = json.loads(EXPERIMENT_TAGS[f"mlflow.sharedViewState.{VIEW}"])
    assert view["selectedColumns"][:2] == ["metrics.`aod_ndcg_at_20`", "metrics.`aod_recall_at_20`"]
    assert "tags.`changed`" in view["selectedColumns"]
    cards = view["compareRunCharts"]
    assert [card.get("metricKey") for card in cards[:4]] == [
        "aod_ndcg_at_20", "aod_recall_at_20", "aod_mrr_at_20", None,
    ]  # fmt: skip
    assert (cards[3]["type"], cards[3]["showDifferencesOnly"]) == ("DIFFERENCE", True)
    shown = [each["uuid"] for each in view["compareRunSections"] if each["display"]]
    assert [*dict.fromkeys(card["metricSectionId"] for card in cards)] == shown


def test_the_settings_that_differ_from_the_defaults_are_a_column(store, project, params):
    changed = replace(params, training=replace(params.training, seed=7))
    for name, given in (("download", params), ("train", changed)):
        with stage_run(name, given):
            pass
    runs = runs_of(store)
    assert runs["download"][0].data.tags["changed"] == "defaults"
    assert runs["train"][0].data.tags["changed"] == "seed=7"


def test_a_stage_whose_experiment_was_deleted_says_how_to_get_it_back(store, params, caplog):
    number = store.experiment_id("dayahead")
    store.client.delete_experiment(number)
    with stage_run("train", params):
        pass
    [line] = [each for each in caplog.messages if "deleted" in each]
    assert f"restore it by `mlflow experiments restore --experiment-id {number}`" in line
    assert "the stage continues" in line
    assert "does not answer" not in line


def test_the_block_may_raise_and_exit(project, params):
    with pytest.raises(ValueError, match="mine"), stage_run("train", params):
        raise ValueError("mine")
    with pytest.raises(SystemExit), stage_run("train", params):
        raise SystemExit
    (outbox,) = outboxes()
    assert [entry["status"] for entry in outbox.entries("end")] == ["FAILED", "FINISHED"]


def test_the_sigterm_handler_is_restored(project, params):
    before = signal.getsignal(signal.SIGTERM)
    with stage_run("train", params):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_no_method_raises(project, params, caplog):
    with stage_run("train", params) as run:
        run.log_metrics({"a": "no number"})
        run.log_artifact(Path("missing"))
        run.log_model(Path("missing"), Path("missing.py"))
        run.log_input(None, "x", lambda: None)
        run.log_window(None)
        run.log_window({"nonsense": 1})
    assert (
        len([line for line in caplog.messages if "the record is skipped" in line]) == 5
    )  # 2 alike


def test_a_project_that_cannot_be_written_stops_no_stage(project, params, caplog):
    (project / ".dayahead").write_text("in the way")
    with stage_run("train", params) as run:
        run.log_window(window(0))
        run.log_metrics({"aod": 1.0})
    assert "the stage is not recorded" in caplog.text


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("stages: 1")])
def test_an_invalid_dvc_yaml_costs_only_the_lineage(store, project, params, caplog, damage):
    damage(project / "dvc.yaml")
    with stage_run("train", params) as run:
        run.log_metrics({"aod": 1.0})
    (train,) = runs_of(store)["train"]
    assert "dayahead.fingerprint" not in train.data.tags
    assert train.data.params["window.unit"] == "day"
    assert "no lineage" in caplog.text


def test_credentials_reach_no_outbox(project, params, monkeypatch):
    config = {"url": "https://me:secret@host/x?secret"}
    params = replace(params, model=replace(params.model, config=config))
    monkeypatch.setenv("DVC_EXP_NAME", "tcp://me:secret@host")
    with stage_run("train", params) as run:
        run.log_input("raw", "s3://me:secret@bucket/x?secret", project / "params.yaml")
    assert "secret" not in run.outbox.path.read_text()
    assert run.outbox.start()["params"]["model.config"] == '{"url": "https://***@host/x?***"}'


def test_text_and_names_that_are_not_utf8_are_written_out(store, project, params, monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", os.fsdecode(b"caf\xe9"))
    file = project / os.fsdecode(b"fl\xf6.txt")
    file.write_text("content")
    with stage_run("train", params) as run:
        run.log_artifact(file)
        run.log_registry({"withdrawn": {"a": os.fsdecode(b"\xff")}, "model": "x"})
        run.log_metrics({"aod": 0.5})
    (train,) = runs_of(store)["train"]
    assert (train.info.status, train.data.metrics) == ("FINISHED", {"aod": 0.5})
    assert train.data.tags["dvc.exp_name"] == "caf\\xe9"
    assert [each.path for each in store.client.list_artifacts(train.info.run_id)] == ["fl\\xf6.txt"]
    assert run.outbox.entries("registry")[0]["withdrawn"] == {"a": "\\xff"}


def test_log_window_can_be_pickled_and_skips_known_windows(project, params):
    """A stage's processes are restarted, and report every window from the first on."""
    with stage_run("train", params) as run:
        pickled = pickle.dumps(run.log_window)
        for steps in ((0,), (0, np.int64(1))):
            log_window = pickle.loads(pickled)
            for step in steps:
                metrics = {"loss": np.float32(0.5), "none": None}
                log_window({"step": step, "timestamp_ms": 10**12, "metrics": metrics})
    first, second = run.outbox.entries("window")
    assert (first["step"], second["step"], second["timestamp"]) == (0, 1, 10**12)
    assert second["metrics"] == {"loss": 0.5}


@pytest.mark.long
def test_a_stage_in_a_copy_of_the_project_is_recorded_in_the_main_one(store, project, monkeypatch):
    copy = project / ".dvc/tmp/exps/standalone/tmp1"
    copy.mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml"):
        (copy / name).write_text((project / name).read_text())
    monkeypatch.chdir(copy)
    assert run_stage("aggregate", DVC_ROOT=str(project))[0] == 0
    assert runs_of(store)["aggregate"][0].info.status == "FINISHED"
    assert not [*copy.glob("mlflow*"), *copy.glob(".dayahead")]


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
    (cold_project / "models/config.json").write_text('{"model": {"features": []}}')
    (cold_project / "echo.py").write_text(CODE)
    return cold_project / "models", cold_project / "echo.py"


@pytest.mark.long
def test_a_packaged_model_is_loaded_without_a_pickle(model, tmp_path):
    package = package_model(tmp_path / "package", *model, PACKAGE)
    assert not [*package.rglob("*.pkl")]
    loaded = mlflow.pyfunc.load_model(str(package))
    sessions = pd.DataFrame({"session": ["1,2,3"]})
    assert loaded.predict(sessions, params={"top_k": 2}) == [
        [{"item": "item 1", "score": 1.0}, {"item": "item 2", "score": 1.0}]
    ]
    assert len(loaded.predict(sessions)[0]) == 3


@pytest.mark.long
def test_a_model_is_packaged_without_a_word():
    code = (
        "import dayahead.tracking.model_package, logging; print(logging.getLogger('mlflow.pyfunc')"
    )
    level = subprocess.run(
        [sys.executable, "-c", f"{code}.getEffectiveLevel())"], capture_output=True, check=True
    )
    assert int(level.stdout) == logging.WARNING  # without the store, as in a night


def test_a_packaged_model_rejects_other_columns(model, tmp_path):
    loaded = mlflow.pyfunc.load_model(str(package_model(tmp_path / "package", *model, PACKAGE)))
    with pytest.raises(MlflowException, match="session"):
        loaded.predict(pd.DataFrame({"items": ["1"]}))


@pytest.mark.long
def test_the_model_is_found_from_its_run(store, params, model):
    with stage_run("train", params) as run:
        run.log_model(*model)
    (train,) = runs_of(store)["train"]
    mlflow.set_tracking_uri(store.uri)
    try:
        loaded = mlflow.pyfunc.load_model(f"runs:/{train.info.run_id}/model")
    finally:
        mlflow.set_tracking_uri(None)
    assert loaded.predict(pd.DataFrame({"session": ["7"]}))[0][0]["item"] == "item 7"
    assert loaded.metadata.signature.params.to_dict()[0]["default"] == 10
