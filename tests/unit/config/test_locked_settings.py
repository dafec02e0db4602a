"""The data set of the results in the last commit."""

import subprocess

import pytest

from dayahead.config.locked_settings import committed_dataset
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
def test_a_lock_that_says_nothing_has_no_data_set(project, text):
    lock = project / "dvc.lock"
    lock.unlink() if text is None else lock.write_text(text)
    commit(project, "dvc.lock")
    assert committed_dataset(project) is None


def test_the_data_set_of_the_last_commit_is_that_of_its_results(project, tmp_path_factory):
    write_lock(project, "mine")
    assert committed_dataset(project) == "synthetic"
    commit(project, "dvc.lock")
    assert committed_dataset(project) == "mine"
    assert committed_dataset(tmp_path_factory.mktemp("no-repository")) is None
