"""Experiments of DVC in clones: what they share with the project, what comes home."""

import os
import subprocess
import time

import pytest

from dayahead.core.errors import TuneError
from dayahead.tune.experiment import Clone, RunningExperiment, hold
from support.git_projects import commit_all, git

DVC_YAML = """stages:
  train:
    cmd: python train.py
    params: [model.n_layer, evaluation.split]
    deps: [train.py]
    outs: [results/windows.csv]
"""
TRAIN = """import os, sys, time
from pathlib import Path
from ruamel.yaml import YAML
params = YAML(typ="safe").load(Path("params.yaml").read_text())
n_layer = params["model"]["n_layer"]
Path("results").mkdir(exist_ok=True)
Path("results/windows.csv").write_text(f"window,ndcg_at_20\\n1,.{n_layer}\\n2,.{n_layer + 1}\\n")
Path(os.environ["DAYAHEAD_ROOT"], "seen.txt").write_text(params["evaluation"]["split"])
if n_layer == 9:
    sys.exit("error: nine layers are too many")
if n_layer == 8:
    time.sleep(60)
"""
PARAMS = "model:\n  n_layer: {}\nevaluation:\n  split: {}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one stage, committed."""
    for name in [name for name in os.environ if name.startswith(("DVC_", "DAYAHEAD_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet")
    subprocess.run(["dvc", "init", "--quiet"], cwd=root, check=True)
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "train.py").write_text(TRAIN)
    (root / "params.yaml").write_text(PARAMS.format(1, "test"))
    (root / ".gitignore").write_text("/results\n/.dayahead\n/seen.txt\n")
    commit_all(root)
    return root


@pytest.fixture
def clone(project, tmp_path):
    home = project / ".dayahead" / "tune" / "s"
    clone = Clone(project, home / "clone-0", hold(home / "lock"))
    (tmp_path / "params.yaml").write_text(PARAMS.format(1, "valid"))
    clone.prepare(tmp_path / "params.yaml")
    yield clone
    os.close(clone.lock)


def finished(experiment):
    while (status := experiment.poll()) is None:
        time.sleep(0.1)
    return status


def experiments_of(root):
    return sorted(
        ref.rpartition("/")[2]
        for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/exps").split()
        if "/exec/" not in ref
    )


@pytest.mark.slow
def test_an_experiment_runs_beside_the_project_and_comes_home(project, clone):
    before = git(project, "status", "--porcelain")
    first = clone.start("s-0", {"model.n_layer": 3}, clone.folder.parent)
    assert finished(first) == 0, first.log.read_text()
    assert first.values("ndcg_at_20") == [0.3, 0.4]
    assert (project / "seen.txt").read_text() == "valid"
    again = clone.start("s-0", {"model.n_layer": 4}, clone.folder.parent)
    assert again.values("ndcg_at_20") == []
    assert finished(again) == 0
    assert experiments_of(project) == ["s-0"]
    [ref] = [
        ref for ref in git(project, "for-each-ref", "--format=%(refname)").split() if "s-0" in ref
    ]
    assert "n_layer: 4" in git(project, "show", f"{ref}:params.yaml")
    assert git(project, "status", "--porcelain") == before
    assert (project / ".dvc" / "cache").is_dir()
    assert not (clone.folder / ".dvc" / "cache").exists()


@pytest.mark.slow
def test_results_of_an_earlier_experiment_are_never_read(project, clone):
    """DVC checks them out again before it runs the next one."""
    first = clone.start("s-0", {"model.n_layer": 3}, clone.folder.parent)
    assert finished(first) == 0, first.log.read_text()
    slow = clone.start("s-1", {"model.n_layer": 8}, clone.folder.parent)
    found = []
    while slow.poll() is None and 0.8 not in found:
        found += slow.values("ndcg_at_20")
    slow.stop()
    assert found == [0.8, 0.9]


@pytest.mark.slow
def test_a_failed_experiment_says_why_and_stays_away(project, clone):
    experiment = clone.start("s-1", {"model.n_layer": 9}, clone.folder.parent)
    assert finished(experiment) not in {0, None}
    assert experiment.error() == "error: nine layers are too many"
    assert experiments_of(project) == []


@pytest.mark.slow
def test_what_names_a_loss_of_a_package_is_computed_again(project, clone, monkeypatch):
    for sources, is_again in (({}, False), ({"loss hinge": "1"}, True)):
        monkeypatch.setattr("dayahead.tune.experiment.package_sources", lambda _, s=sources: s)
        for name in ("s-1", "s-2"):
            (project / "seen.txt").unlink(missing_ok=True)
            assert finished(clone.start(name, {"model.n_layer": 3}, clone.folder.parent)) == 0
        assert (project / "seen.txt").exists() == is_again


@pytest.mark.slow
def test_a_stopped_experiment_leaves_a_clone_for_the_next(project, clone):
    slow = clone.start("s-2", {"model.n_layer": 8}, clone.folder.parent)
    while not slow.values("ndcg_at_20"):
        assert slow.poll() is None, slow.log.read_text()
        time.sleep(0.1)
    slow.stop()
    assert finished(slow) != 0
    following = clone.start("s-3", {"model.n_layer": 2}, clone.folder.parent)
    assert finished(following) == 0, following.log.read_text()
    assert experiments_of(project) == ["s-3"]


def test_a_project_without_a_commit_is_refused(tmp_path):
    root = tmp_path / "empty"
    root.mkdir()
    clone = Clone(root, tmp_path / "clone", 0)
    with pytest.raises(TuneError, match=r"git .*clone.* failed: .*not"):
        clone.prepare(tmp_path / "params.yaml")


def test_a_row_that_is_written_in_part_does_not_count(tmp_path):
    (tmp_path / "results").mkdir()
    log = tmp_path / "s-0.log"
    with subprocess.Popen(["sleep", "60"]) as process:
        experiment = RunningExperiment("s-0", tmp_path, tmp_path, process, log)
        check_values(experiment, tmp_path, log)
        process.kill()


def check_values(experiment, tmp_path, log):
    (tmp_path / "results" / "windows.csv").write_text("window,ndcg_at_20\n1,0.25\n")
    log.write_text("Reproducing experiment 's-0'\n")
    assert experiment.values("ndcg_at_20") == []  # of an earlier experiment
    log.write_text("Running stage 'train':\n")
    (tmp_path / "results" / "windows.csv").unlink()
    assert experiment.values("ndcg_at_20") == []
    for text, values in (
        ("window,ndcg_at_20\n", []),
        ("window,ndcg_at_20\n1,0.25\n2,0.2", [0.25]),
        ("window,ndcg_at_20\n1,0.25\n2,0.28\n", [0.25, 0.28]),
    ):
        (tmp_path / "results" / "windows.csv").write_text(text)
        assert experiment.values("ndcg_at_20") == values


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("a\nerror: too many\nERROR: failed to reproduce 'train'\n", "error: too many"),
        ("a\nERROR: configuration is missing\nb\n", "ERROR: configuration is missing"),
        ("a\nsh: 1: not found\n", "sh: 1: not found"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3\nb\nERROR: x\n',
            "KeyError: 3",
        ),
        ("", "no output"),
    ],
)
def test_the_error_is_that_of_the_stage(tmp_path, log, error):
    (tmp_path / "s-0.log").write_text(log)
    experiment = RunningExperiment("s-0", tmp_path, tmp_path, None, tmp_path / "s-0.log")
    assert experiment.error() == error
