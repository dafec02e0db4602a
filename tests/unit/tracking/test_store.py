import logging
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow import MlflowException
from mlflow.store.tracking.rest_store import RestStore

from dayahead.core.errors import TrackingError
from dayahead.tracking.store import Store, artifact_location, tracking_uri
from support.tracked_stages import runs_of, start_stage


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "sqlite:////p/mlflow.db"),
        ("sqlite:///runs.db", "sqlite:////p/runs.db"),
        ("sqlite:////other/runs.db", "sqlite:////other/runs.db"),
        ("mlruns", "file:///p/mlruns"),
        ("./mlruns", "file:///p/mlruns"),
        ("file:mlruns", "file:///p/mlruns"),
        ("file:///other", "file:///other"),
        ("http://host:5000", "http://host:5000"),
        ("databricks", "databricks"),
    ],
)
def test_relative_stores_are_made_absolute(monkeypatch, given, expected):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert tracking_uri(Path("/p")) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:////p/mlflow.db", "/p/mlartifacts"),
        ("postgresql://host/db", "/root/mlartifacts"),
        ("http://host:5000", None),
    ],
)
def test_databases_get_an_absolute_artifact_folder(uri, expected):
    assert artifact_location(uri, Path("/root")) == expected


def test_an_experiment_is_created_once(store, project):
    first = store.experiment_id("dayahead")
    assert Store(project).experiment_id("dayahead") == first
    experiment = store.client.get_experiment(first)
    assert experiment.artifact_location == str(project / "mlartifacts")


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [3, 6])
def test_processes_that_start_at_once_create_one_store(cold_project, n_processes):
    names = {f"exp-{n}" for n in range(n_processes)}
    processes = [start_stage("download", DVC_EXP_NAME=name) for name in names]
    for process in processes:
        process.join(90)
    assert [process.exitcode for process in processes] == [0] * n_processes
    assert "".join(output.read_text() for output in cold_project.glob("output-*")) == ""
    runs = runs_of(Store(cold_project))
    assert {run.data.tags["dvc.exp_name"] for run in runs["pipeline"]} == names
    assert [run.info.status for run in runs["download"]] == ["FINISHED"] * n_processes


def test_a_database_that_cannot_grow_prints_nothing(store, capfd):
    """The stage says so in one line."""
    assert store.client.search_experiments()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(MlflowException, match="disk I/O error"):
            store.experiment_id("dayahead")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capfd.readouterr() == ("", "")


def test_telemetry_is_off():
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_mlflow_prints_no_address_at_the_end_of_a_run(project, monkeypatch, capsys):
    """It would print user and password of the store."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:HUSH@127.0.0.1:9")
    run = SimpleNamespace(
        info=SimpleNamespace(experiment_id="1", run_name="x"), data=SimpleNamespace(tags={})
    )
    monkeypatch.setattr(RestStore, "get_run", lambda *_: run)
    monkeypatch.setattr(RestStore, "update_run_info", lambda *_, **__: None)
    monkeypatch.setattr(RestStore, "_validate_workspace_support_if_specified", lambda _: None)
    Store(project).client.set_terminated("0" * 32)
    assert capsys.readouterr().out == ""


def test_warnings_of_mlflow_hold_no_password(capsys):
    logging.getLogger("mlflow.store").warning("no answer from %s", "http://me:HUSH@host/x")
    assert "no answer from http://***@host/x" in capsys.readouterr().err
    try:
        raise OSError("http://me:HUSH@host/x")
    except OSError:
        logging.getLogger("mlflow.store").exception("no answer")
    assert "OSError: http://***@host/x" in capsys.readouterr().err


def test_an_experiment_deleted_in_mlflow_is_named_with_the_way_back(store):
    number = store.experiment_id("shop")
    store.client.delete_experiment(number)
    with pytest.raises(TrackingError, match=rf"restore --experiment-id {number}.*tracking\.exp"):
        store.experiment_id("shop")
    store.client.restore_experiment(number)
    assert store.experiment_id("shop") == number


def test_artifacts_move_with_the_project(store, project, monkeypatch):
    """Runs and experiments of other places keep theirs."""
    other = project.parent / "other/mlartifacts"
    other.mkdir(parents=True)
    elsewhere = store.client.create_experiment("elsewhere", str(other))
    run = store.client.create_run(store.experiment_id("dayahead"))
    store.client.log_text(run.info.run_id, "text", "a b.txt")
    moved = project.rename(project.parent / "Größe ☕ shop")
    monkeypatch.chdir(moved)
    after = Store(moved)
    found = after.client.get_run(run.info.run_id).info.artifact_uri
    assert found == f"{moved}/mlartifacts/{run.info.run_id}/artifacts"
    assert [each.path for each in after.client.list_artifacts(run.info.run_id)] == ["a b.txt"]
    experiment = after.client.get_experiment(after.experiment_id("dayahead"))
    assert experiment.artifact_location == str(moved / "mlartifacts")
    kept = after.client.get_experiment(elsewhere).artifact_location
    assert kept == str(other)
    assert not project.exists()
