"""`dayahead tune` on a whole project: killed, continued, two trials at a time."""

import time

import optuna
import pytest

from dayahead.config.loading import read_yaml
from dayahead.presets import preset_options
from dayahead.tracking.store import Store
from support.git_projects import git, make_project, start_dayahead, working_below, written

pytestmark = pytest.mark.slow
SPACE = """description: how many neighbours
space:
  neighbours.k: {low: 1, high: 50, log: true}
  neighbours.step_weight: {choices: [same, div], when: {model.architecture: vsknn}}
"""
N_TRIALS = 4


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune") / "project"
    settings = {"model": {"architecture": "vsknn"}}
    return make_project(folder, settings, 5, {"searches/mine.yaml": SPACE})


def tune(project):
    return start_dayahead(project, "tune", "mine", "--trials", str(N_TRIALS), "-j", "2")


def study_of(project):
    storage = f"sqlite:///{project / '.dayahead' / 'tune' / 'mine.db'}"
    return optuna.load_study(study_name="mine", storage=storage)


@pytest.fixture(scope="module")
def tuned(project):
    """The project after a search that was killed while trials ran, and continued."""
    before = git(project, "status", "--porcelain"), (project / "params.yaml").read_bytes()
    first = tune(project)
    while not (project / ".dayahead" / "tune" / "mine" / "mine-1.log").exists():
        assert first.poll() is None, written(project)
        time.sleep(0.2)
    first.kill()
    first.wait()
    assert {trial.state.name for trial in study_of(project).trials} == {"RUNNING"}
    second = tune(project)
    assert second.wait() == 0, written(project)
    assert working_below(project) == []
    after = git(project, "status", "--porcelain"), (project / "params.yaml").read_bytes()
    assert after[1] == before[1]
    assert set(after[0].splitlines()) - set(before[0].splitlines()) == {"?? presets/"}
    return project


def test_no_trial_is_lost_or_counted_twice(tuned):
    trials = study_of(tuned).trials
    assert [trial.number for trial in trials] == [*range(N_TRIALS)]
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "PRUNED"}


def test_trials_are_experiments_of_the_project_on_valid(tuned):
    refs = git(tuned, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    found = {ref.rpartition("/")[2]: ref for ref in refs}
    complete = [trial for trial in study_of(tuned).trials if trial.state.name == "COMPLETE"]
    assert {"mine-current", *(f"mine-{trial.number}" for trial in complete)} <= {*found}
    for trial in complete:
        text = git(tuned, "show", f"{found[f'mine-{trial.number}']}:params.yaml")
        (tuned.parent / "params.yaml").write_text(text)
        params = read_yaml(tuned.parent / "params.yaml")
        assert params["neighbours"]["k"] == trial.params["neighbours.k"]
        assert params["evaluation"]["split"] == "valid"


def test_the_best_trial_is_a_preset(tuned):
    study = study_of(tuned)
    options = preset_options("tuned/mine", tuned / "presets", tuned / "params.yaml")
    assert f"-Sneighbours.k={study.best_params['neighbours.k']}" in options
    assert "dayahead preset tuned/mine" in "".join(written(tuned))


def test_runs_of_trials_are_nested_in_the_study(tuned, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = Store(tuned)
    runs = store.client.search_runs([store.experiment_id("tiny")], max_results=100)
    [study] = [run for run in runs if run.data.tags["dvc.stage"] == "search"]
    nested = {
        run.data.tags["dvc.exp_name"]
        for run in runs
        if run.data.tags.get("mlflow.parentRunId") == study.info.run_id
    }
    complete = [trial for trial in study_of(tuned).trials if trial.state.name == "COMPLETE"]
    assert {"mine-current", *(f"mine-{trial.number}" for trial in complete)} <= nested
    assert study.data.metrics["best"] == pytest.approx(study_of(tuned).best_value)
