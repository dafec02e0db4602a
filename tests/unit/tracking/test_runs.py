import pickle
import signal
from pathlib import Path

import pytest

from dayahead.tracking.journal import Journal, warn_once
from dayahead.tracking.runs import stage_run
from support.tracked_stages import points_of, run_stage, runs_of, window


def test_the_stages_of_an_execution_share_a_parent(store):
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


@pytest.mark.parametrize(
    ("deed", "code", "status"), [("raise", 1, "FAILED"), ("terminate", 143, "KILLED")]
)
def test_a_stage_that_does_not_end_says_how(store, deed, code, status):
    assert run_stage("train", deed)[0] == code
    runs = runs_of(store)
    assert runs["train"][0].info.status == runs["pipeline"][0].info.status == status
    assert len(points_of(store, runs["train"][0])) == 3


@pytest.mark.parametrize("deed", ["raise", "kill"])
def test_a_stage_started_again_logs_what_is_missing(store, deed):
    run_stage("train", deed)
    assert run_stage("train")[0] == 0
    runs = runs_of(store)
    (train,), (parent,) = runs["train"], runs["pipeline"]
    assert points_of(store, train) == points_of(store, parent)
    assert [step for step, _ in points_of(store, train)] == [0, 1, 2, 3]
    assert train.info.status == parent.info.status == "FINISHED"


def test_the_block_may_raise_and_exit_as_it_likes(project, params):
    with pytest.raises(ValueError, match="mine"), stage_run("train", params):
        raise ValueError("mine")
    with pytest.raises(SystemExit), stage_run("train", params):
        raise SystemExit
    (journal,) = (project / ".dayahead/journal/lofty-sail").glob("*.jsonl")
    assert [e["status"] for e in Journal(journal).entries("end")] == ["FAILED", "FINISHED"]


def test_sigterm_keeps_its_former_meaning_afterwards(project, params):
    before = signal.getsignal(signal.SIGTERM)
    with stage_run("train", params):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_every_method_survives_whatever_it_is_given(project, params, caplog):
    with stage_run("train", params) as run:
        run.log_metrics({"a": "no number"})
        run.log_artifact(Path("missing"))
        run.log_artifacts(Path("missing"), "x")
        run.log_model(Path("missing"), Path("missing.py"), "1,2")
        run.log_window(None)
    assert len([m for m in caplog.messages if "left out" in m]) == 5


def test_a_project_that_cannot_be_written_is_no_obstacle(project, params, caplog):
    warn_once.cache_clear()
    (project / ".dayahead").write_text("in the way")
    with stage_run("train", params) as run:
        run.log_window(window(0))
        run.log_metrics({"aod": 1.0})
    assert "goes unrecorded" in caplog.text


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("stages: 1")])
def test_a_run_whose_dvc_yaml_is_no_use_lacks_only_its_lineage(
    store, project, params, caplog, damage
):
    warn_once.cache_clear()
    damage(project / "dvc.yaml")
    with stage_run("train", params) as run:
        run.log_metrics({"aod": 1.0})
    (train,) = runs_of(store)["train"]
    assert "dayahead.fingerprint" not in train.data.tags
    assert train.data.params["window.unit"] == "day"
    assert "no lineage" in caplog.text


def test_credentials_reach_no_journal(project, params, monkeypatch):
    with stage_run("train", params) as run:
        run.log_params({"scheduler": "tcp://me:secret@host:1", "n": [1]})
        run.log_input("raw", "s3://me:secret@bucket/x?secret", "0" * 64)
    assert "secret" not in run.journal.path.read_text()
    assert run.journal.entries("params")[0]["params"] == {
        "scheduler": "tcp://***@host:1",
        "n": "[1]",
    }


def test_log_window_can_be_pickled(project, params):
    with stage_run("train", params) as run:
        pickle.loads(pickle.dumps(run.log_window))(window(5))
    assert [entry["step"] for entry in run.journal.entries("metrics")] == [5]


def test_a_copy_of_the_project_reports_to_the_main_one(store, project, monkeypatch):
    copy = project / ".dvc/tmp/exps/standalone/tmp1"
    copy.mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml"):
        (copy / name).write_text((project / name).read_text())
    monkeypatch.chdir(copy)
    assert run_stage("aggregate", DVC_ROOT=str(project))[0] == 0
    assert runs_of(store)["aggregate"][0].info.status == "FINISHED"
    assert not [*copy.glob("mlflow*"), *copy.glob(".dayahead")]
