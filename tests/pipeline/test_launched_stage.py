"""The stage `train` under a launcher: one process writes and records, the others only compute."""

import shutil

import pytest

from dayahead.config.baselines import COMPARED
from support.git_projects import commit_all
from support.launched_study import errors_in, ranks
from support.outputs import outputs_in
from support.project_copy import copy_project
from support.results_folders import write_raw_manifest
from support.window_folders import markov_days, write_window_folder

pytestmark = pytest.mark.slow
SETTINGS = {
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 1, "batch_size": 16, "precision": "float32"},
    "compute": {"processes": "auto", "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
ENVIRON = {"PYTHONPATH": "src", "MASTER_ADDR": "localhost", "DVC_NO_ANALYTICS": "1"}


@pytest.fixture
def project(tmp_path):
    """A project with its windows, nothing trained."""
    copy_project(tmp_path, SETTINGS)
    write_window_folder(tmp_path / "data" / "windows", markov_days(4, 61, n_items=30))
    write_raw_manifest(tmp_path / "data" / "raw")
    commit_all(tmp_path)
    return tmp_path


def stage(project, *, ranks_of_launcher=({},), **environ):
    """Run the stage once per launcher's environment: exit statuses and outputs."""
    with ranks() as started:
        for variables in ranks_of_launcher:
            started.start(["python", "stages/train.py"], project, **ENVIRON, **environ, **variables)
        outputs = started.said()
    return started.statuses, outputs


def record_files(project):
    return sorted(project.glob(".dayahead/outbox/*/train.jsonl"))


def test_one_process_of_a_launcher_records_and_writes(project, free_port):
    variables = {"WORLD_SIZE": "2", "MASTER_PORT": free_port}
    statuses, outputs = stage(
        project, ranks_of_launcher=[{"RANK": str(rank)} | variables for rank in (0, 1)]
    )
    assert statuses == [0, 0], outputs
    assert len(record_files(project)) == 1
    whole = outputs_in(project)
    assert {"evidence.csv", *(f"baselines/{name}.csv" for name in COMPARED)} < {*whole}
    for name in ("results", "models", ".dayahead"):
        shutil.rmtree(project / name)
    launch = f"torchrun --nproc-per-node=2 --master-port={free_port}"
    statuses, outputs = stage(project, DAYAHEAD_LAUNCH=launch)
    assert statuses == [0], outputs
    assert outputs_in(project) == whole
    assert len(record_files(project)) == 1


def test_baselines_reach_mlflow_the_report_and_the_summary(project):
    statuses, outputs = stage(project)
    assert statuses == [0], outputs
    lines = outputs[0].splitlines()
    assert sum(line.startswith("window ") for line in lines) == 3  # of the model alone
    assert sum(line.startswith("baseline ") for line in lines) == 3
    [records] = record_files(project)
    assert '"transitions_aod_ndcg_at_20"' in records.read_text()
    with ranks() as started:
        for command in ("python stages/aggregate.py", "python -m dayahead summary"):
            started.start(command.split(), project, **ENVIRON)
            [*_, summary] = started.said()
    assert started.statuses == [0, 0], summary
    [head, *rows] = [line.split() for line in summary.split("\n\n")[0].splitlines()]
    assert [row[0] for row in rows] == ["memory", "popularity", "own", "transitions"]
    report = (project / "results" / "report.html").read_text()
    assert all(f">{value}</td>" in report for row in rows for value in row[1:])
    assert head[0] == "AOD"


def test_dvc_runs_the_stage_through_a_launcher(project, free_port):
    launch = f"torchrun --nproc-per-node=2 --master-port={free_port}"
    site = str(project / ".dvc" / "site")
    environ = ENVIRON | {"DAYAHEAD_LAUNCH": launch, "DVC_SITE_CACHE_DIR": site}
    with ranks() as started:
        started.start(["dvc", "repro", "--single-item", "train"], project, **environ)
        outputs = started.said()
    assert started.statuses == [0], outputs
    [records] = record_files(project)
    assert records.parent.name.startswith("dvc-")
    assert "results/windows.csv" in (project / "dvc.lock").read_text()


def test_a_missing_launcher_is_named(project):
    statuses, [output] = stage(project, DAYAHEAD_LAUNCH="no-such-launcher -n 2")
    assert statuses == [1]
    [error] = errors_in(output)
    assert error.startswith("error: DAYAHEAD_LAUNCH: ")
    assert "no-such-launcher" in error
    assert "unset DAYAHEAD_LAUNCH" in error
