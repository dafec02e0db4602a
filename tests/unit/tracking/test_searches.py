"""The run of a search: recorded once, also what a server missed; it never stops a search."""

import pytest

from dayahead.tracking.searches import SearchRun
from dayahead.tracking.store import Store
from support.tracked_stages import NOWHERE, points_of


def test_a_trial_is_recorded_once(store):
    for _ in range(2):
        run = SearchRun("mine", "study", {"space.model.n_layer": "1 to 3"})
        run.log_trial(0, "study-0", {"ndcg_at_20": 0.25, "best": 0.25})
        run.log_trial(1, "study-1", {"best": 0.25})  # it failed
    run.end({"best": 0.25})
    [found] = store.client.search_runs([store.experiment_id("mine")])
    assert found.info.run_id == run.run
    assert points_of(store, found, "ndcg_at_20") == [(0, 0.25)]
    assert found.data.tags["trial.1"] == "study-1"
    assert found.data.params == {"space.model.n_layer": "1 to 3"}
    assert found.info.status == "FINISHED"


def test_only_the_pipeline_run_of_a_trial_is_nested(store):
    experiment = store.experiment_id("mine")
    runs = {}
    for name, stage in (("study-0", "pipeline"), ("study-0", "train"), ("study-1", "pipeline")):
        tags = {"dvc.exp_name": name, "dvc.stage": stage}
        runs[name, stage] = store.client.create_run(experiment, tags=tags).info.run_id
    study = SearchRun("mine", "study", {})
    study.link("study-0")
    parents = {
        key: store.client.get_run(run).data.tags.get("mlflow.parentRunId")
        for key, run in runs.items()
    }
    assert parents == {
        ("study-0", "pipeline"): study.run,
        ("study-0", "train"): None,
        ("study-1", "pipeline"): None,
    }


def test_a_server_that_is_down_stops_nothing(project, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    run = SearchRun("mine", "study", {})
    run.log_trial(0, "study-0", {"best": 0.25})
    run.link("study-0")
    run.end({"best": 0.25})
    assert run.run is None
    assert "the study is not recorded" in caplog.text


@pytest.mark.parametrize("call", [lambda run: run.end({}), lambda run: run.link("study-0")])
def test_a_server_that_goes_away_stops_nothing(store, monkeypatch, call):
    run = SearchRun("mine", "study", {})
    run.store = Store()
    monkeypatch.setattr(run.store, "uri", NOWHERE)
    call(run)
