"""Settings of results and of params.yaml: where they disagree, in the folder and in the commit."""

import subprocess

import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.locked_settings import committed_dataset, disagreements
from dayahead.core.files import write_json

PARAMS = """\
dataset: synthetic
model: {n_layer: 2, config: {}}
window: {first: null, length: 1}
machine: {workers: auto}
"""


def write_lock(root, dataset="synthetic", n_layer=2):
    """What DVC writes: single settings, and whole sections."""
    params = {"dataset": dataset, "model": {"n_layer": n_layer, "config": {}}, "window.length": 1}
    stages = {"download": {"params": {"params.yaml": {"dataset": dataset}}}}
    stages["train"] = {"cmd": "python", "params": {"params.yaml": params}}
    write_json(root / "dvc.lock", {"schema": "2.0", "stages": stages})  # JSON is YAML


def git(root, *words):
    names = ("-c", "user.name=n", "-c", "user.email=n")
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True)


def commit(root, *names):
    git(root, "add", *names)
    git(root, "commit", "-qm", "Run")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "datasets").mkdir()
    for name in ("synthetic", "mine"):
        (tmp_path / "datasets" / f"{name}.yaml").write_text("description: clicks\n")
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_lock(tmp_path)
    git(tmp_path, "init", "-q")
    commit(tmp_path, "params.yaml", "dvc.lock", "datasets/synthetic.yaml")
    return tmp_path


def set_params(project, **changed):
    path = project / "params.yaml"
    write_json(path, read_yaml(path) | changed)


def test_nothing_is_said_where_they_agree(project):
    assert [*disagreements(project)] == []
    set_params(project, machine={"workers": 4})  # no stage depends on it
    assert [*disagreements(project)] == []


def test_changed_settings_are_named_with_both_values(project):
    set_params(project, dataset="mine", model={"n_layer": 3, "config": {}})
    [line] = disagreements(project)
    assert "disagree on dataset (mine, synthetic), model.n_layer (3, 2). The results" in line
    assert "run `dvc repro`" in line


def test_a_commit_of_the_lock_alone_is_found_where_it_is_made_and_in_a_clone(project, tmp_path):
    set_params(project, dataset="mine")
    write_lock(project, dataset="mine")
    assert [*disagreements(project)] == []  # before the commit all is as it should be
    commit(project, "dvc.lock")
    ours, dataset = disagreements(project)
    assert "of the last commit disagree on dataset (synthetic, mine), so that a clone" in ours
    assert dataset.startswith("datasets/mine.yaml: not committed")
    git(tmp_path, "clone", "-q", str(project), "clone")
    [cloned] = disagreements(tmp_path / "clone")
    assert "disagree on dataset (synthetic, mine). The results are those of dvc.lock" in cloned
    commit(project, "params.yaml", "datasets")
    assert [*disagreements(project)] == []


def test_many_settings_are_counted(project):
    locked = {f"model.{name}": 1 for name in "abcde"}
    stages = {"train": {"params": {"params.yaml": locked}}}
    write_json(project / "dvc.lock", {"stages": stages})
    [line] = disagreements(project)
    assert "model.a (None, 1), model.b (None, 1), model.c (None, 1) and 2 more" in line


@pytest.mark.parametrize(
    "text",
    [
        None,
        "<<<<<<< HEAD\n: :",
        "[]",
        "stages:",
        "stages: []",
        "stages: {train: null}",
        "stages: {train: {params: {params.yaml: null}}}",
    ],
)
def test_a_lock_that_says_nothing_is_compared_with_nothing(project, text):
    lock = project / "dvc.lock"
    lock.unlink() if text is None else lock.write_text(text)
    assert [*disagreements(project)] == []
    commit(project, "dvc.lock")
    assert [*disagreements(project)] == []
    assert committed_dataset(project) is None


def test_a_folder_without_git_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "params.yaml").write_text(PARAMS)
    write_lock(tmp_path, n_layer=1)
    [line] = disagreements(tmp_path)
    assert "model.n_layer (2, 1)" in line


def test_the_data_set_of_the_last_commit_is_that_of_its_results(project, tmp_path_factory):
    write_lock(project, "mine")
    assert committed_dataset(project) == "synthetic"
    commit(project, "dvc.lock")
    assert committed_dataset(project) == "mine"
    assert committed_dataset(tmp_path_factory.mktemp("no-repository")) is None
