"""A Slurm for the session, and a prepared project that each test trains in a copy of its own."""

import shutil
import sys

import pytest

from cluster.study import ROOT, Study
from support.project_copy import copy_project, shrink_log
from support.slurm_lab import SlurmLab, lacking

SETTINGS = {
    "model": {"architecture": "gpt2", "d_model": 16, "n_layer": 1, "n_head": 2, "dropout": 0.1},
    "training": {"epochs": 2, "batch_size": 32, "precision": "float32"},
    "compute": {"processes": "auto", "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """Slurm on two nodes."""
    if reason := lacking():
        pytest.skip(reason)
    started = SlurmLab(tmp_path_factory.mktemp("slurm"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def prepared(lab, tmp_path_factory):
    """A project with its windows, nothing trained."""
    folder = tmp_path_factory.mktemp("prepared")
    copy_project(folder, SETTINGS)
    shrink_log(folder, 7, 400)
    shutil.copytree(ROOT / "tools", folder / "tools")
    study = Study(lab, folder)
    (folder / ".venv").symlink_to(sys.prefix)
    with (folder / ".gitignore").open("a") as ignored:
        ignored.write("/.venv\n")
    study.run("git init -q; git config user.name n; git config user.email n; git add .")
    study.run("git commit -qm all && dvc repro preprocess")
    study.run("git add dvc.lock && git commit -qm windows")
    return study


@pytest.fixture
def study(prepared, tmp_path):
    """A copy that a test may disturb, on the disk that all nodes see."""
    return prepared.copied(tmp_path / "study")


@pytest.fixture(scope="session")
def reference(prepared, tmp_path_factory):
    """Hashes of all outputs of an undisturbed job on two nodes."""
    study = prepared.copied(tmp_path_factory.mktemp("reference") / "study")
    job = study.train()
    assert job.wait() == "COMPLETED", job.output
    return study.outputs()
