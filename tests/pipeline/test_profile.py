"""A profile through the pipeline: phases of every stage, the report, MLflow's records."""

import json
import shutil

import pytest

from dayahead.core.phases import read_phases
from support.git_projects import make_project
from support.launched_study import ranks
from support.project_copy import change_params
from support.window_folders import bytes_in

pytestmark = pytest.mark.slow
SETTINGS = {
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "memory": {"epochs": 1, "first_epochs": 1},
    "training": {"epochs": 1, "batch_size": 16, "precision": "float32"},
    "compute": {"processes": 2, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
    "window": {"min_sessions": 10},
    "profile": {"window": "2026-01-02", "first_step": 1, "steps": 2},
}
ENVIRON = {"PYTHONPATH": "src", "DVC_NO_ANALYTICS": "1"}


@pytest.fixture
def project(tmp_path):
    """A project with little data, in which nothing has run."""
    return make_project(tmp_path / "project", SETTINGS, 4, {})


def repro(project):
    with ranks() as started:
        site = str(project / ".dvc" / "site")
        started.start(["dvc", "repro"], project, **ENVIRON, DVC_SITE_CACHE_DIR=site)
        [output] = started.said()
    assert started.statuses == [0], output
    return output


def test_a_profile_of_two_processes_reaches_all_outputs(project):
    output = repro(project)
    assert "profile of the fit of 2026-01-02" in output
    assert "USDT" not in output
    results = project / "results"
    stages = {path.stem: read_phases(path) for path in (results / "phases").iterdir()}
    assert set(stages) == {"download", "preprocess", "train", "aggregate"}
    for rows in stages.values():
        assert sum(row.own_seconds for row in rows) == pytest.approx(rows[0].seconds, abs=1e-3)
        assert rows[0].peak_mib > 50
    names = {row.phase for row in stages["train"]}
    assert {"fit/network/step/body", "evaluate/step/rank", "baselines/evaluate"} < names
    assert "fit/network/step/collectives" in names  # rank 0 is a process of its own
    profiled = {row.phase for row in read_phases(results / "profile" / "phases.csv")}
    assert {"fit/network/step/backward", "fit/memory/head/step", "evaluate/step/rank"} < profiled
    assert (results / "profile" / "trace-fit-network-rank0.json.gz").stat().st_size > 1000
    report = (results / "report.html").read_text()
    assert "Where the time goes" in report
    assert "The fit of 2026-01-02 and the evaluation of its model" in report
    [path] = project.glob(".dayahead/outbox/*/train.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines() if line]
    assert any(each.get("file", "").endswith("/profile") for each in records)
    assert any("profile/fit/network" in each.get("metrics", {}) for each in records)

    before = {name: text for name, text in bytes_in(results).items() if name.startswith("ranks")}
    shutil.rmtree(results / "profile")
    change_params(project, {"profile": {"window": None}})
    repro(project)
    ranks_now = bytes_in(results / "ranks")
    assert {f"ranks/{name}": text for name, text in ranks_now.items()} == before
    assert [path.name for path in (results / "profile").iterdir()] == ["README.txt"]
    assert "Where the time goes" not in (results / "report.html").read_text()
