"""`dayahead tune` on a whole project: killed, continued, two trials at a time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest

from dayahead.config.loading import read_yaml
from dayahead.presets import preset_options
from dayahead.tracking.store import Store
from support.project_copy import copy_project

pytestmark = pytest.mark.slow
SPACE = """description: how many neighbours
space:
  neighbours.k: {low: 1, high: 50, log: true}
  neighbours.step_weight: {choices: [same, div], when: {model.architecture: vsknn}}
"""
SETTINGS = {
    "model": {"architecture": "vsknn"},
    "window": {"min_sessions": 1},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "machine": {"workers": 1},
    "tracking": {"experiment": "tiny"},
}
N_TRIALS = 4


def git(folder, *arguments):
    command = ["git", "-c", "user.name=me", "-c", "user.email=me@here", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of five short days, committed, in whose folder nothing has run."""
    root = tmp_path_factory.mktemp("tune") / "project"
    root.mkdir()
    copy_project(root, SETTINGS)
    dataset = root / "datasets" / "synthetic.yaml"
    text = dataset.read_text().replace("days: 15", "days: 5")
    dataset.write_text(text.replace("_day: 4000", "_day: 200"))
    (root / ".dvc" / ".gitignore").write_text("/cache\n/tmp\n/config.local\n")
    (root / "searches").mkdir()
    (root / "searches" / "mine.yaml").write_text(SPACE)
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "me")
    git(root, "config", "user.email", "me@here")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "first")
    return root


def tune(project):
    """Start the search as a user's shell does."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    environment = kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{project / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        "DVC_SITE_CACHE_DIR": f"{project}-site",
        "MLFLOW_TRACKING_URI": "",
    }
    command = [sys.executable, "-m", "dayahead", "tune", "mine", "--trials", str(N_TRIALS)]
    with (project.parent / "output.txt").open("w") as output:
        return subprocess.Popen(
            [*command, "-j", "2"], cwd=project, env=environment, stdout=output, stderr=output
        )


def study_of(project):
    storage = f"sqlite:///{project / '.dayahead' / 'tune' / 'mine.db'}"
    return optuna.load_study(study_name="mine", storage=storage)


def running_below(folder):
    """Processes that work in a clone of the study."""
    return [
        process
        for process in psutil.process_iter(["cwd"])
        if str(process.info["cwd"]).startswith(str(folder / ".dayahead"))
    ]


@pytest.fixture(scope="module")
def tuned(project):
    """The project after a search that was killed while trials ran, and continued."""
    before = git(project, "status", "--porcelain"), (project / "params.yaml").read_bytes()
    first = tune(project)
    while not (project / ".dayahead" / "tune" / "mine" / "mine-1.log").exists():
        assert first.poll() is None, (project.parent / "output.txt").read_text()
        time.sleep(0.2)
    first.kill()
    first.wait()
    assert {trial.state.name for trial in study_of(project).trials} == {"RUNNING"}
    second = tune(project)
    assert second.wait() == 0, (project.parent / "output.txt").read_text()
    assert running_below(project) == []
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
    assert "dayahead preset tuned/mine" in (tuned.parent / "output.txt").read_text()


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
