"""`dayahead study` on a whole project: killed, continued, with a row that fails, and repeated."""

import csv
import time
from io import StringIO

import pytest

from dayahead.comparison.rows import parse_row
from dayahead.comparison.table import result_table
from support.git_projects import git, make_project, start_dayahead, working_below, written

pytestmark = pytest.mark.slow
STUDY = """description: counting baselines
seeds: [1, 2]
settings:
  training: {fit_last: false}
rows:
  Transitions: {settings: {model: {architecture: transitions}}}
  Neighbours (10):
    settings: {model: {architecture: vsknn}, neighbours: {k: 10}}
    seeds: [1]
  Broken: {settings: {model: {architecture: gpt2, features: [nosuch]}}, seeds: [5]}
"""
EXPERIMENTS = ["mine-neighbours-10-1", "mine-transitions-1", "mine-transitions-2"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "project"
    return make_project(folder, {}, 7, {"studies/mine.yaml": STUDY})


def start(project):
    return start_dayahead(project, "study", "mine", "--format", "csv")


def ended(project, process):
    status = process.wait()
    output, errors = written(project)
    return status, list(csv.DictReader(StringIO(output))), errors


def experiments(project):
    refs = git(project, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    return sorted(ref.rpartition("/")[2] for ref in refs if "/exec/" not in ref)


@pytest.fixture(scope="module")
def done(project):
    """The project after a study that was killed in its second run, and continued."""
    first = start(project)
    while not (project / ".dayahead/studies/mine/mine-neighbours-10-1.log").exists():
        assert first.poll() is None, ended(project, first)
        time.sleep(0.2)
    first.kill()
    first.wait()
    assert experiments(project) == ["mine-transitions-1"]
    return ended(project, start(project))


def test_a_killed_study_goes_on_with_what_is_missing(project, done):
    status, rows, errors = done
    assert "1 of 4 runs are there already" in errors
    assert "mine-transitions-1" not in errors
    assert experiments(project) == EXPERIMENTS
    assert [(row["row"], row["runs"]) for row in rows] == [
        ("Transitions", "2"),
        ("Neighbours (10)", "1"),
    ]
    assert status == 1
    assert working_below(project) == []
    assert git(project, "status", "--porcelain") == ""


def test_a_run_that_fails_is_named_and_the_others_go_on(done):
    _, _, errors = done
    lines = [line for line in errors.splitlines() if "Broken, seed 5" in line]
    assert "failed: " in lines[1]
    assert lines[-1].startswith("error: 1 of 4 runs failed and are not in the table: Broken")
    assert "params.yaml: model.features: nosuch: no feature of" in lines[-1]
    assert "(output: .dayahead/studies/mine/mine-broken-5.log)" in lines[-1]
    assert sum(" experiment mine-" in line for line in errors.splitlines()) == 2


def test_the_table_is_that_of_the_experiments(project, done, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("DVC_ROOT", str(project))
    texts = ["mine-transitions-1", "mine-transitions-2", "x=mine-neighbours-10-1"]
    table = result_table([parse_row(text) for text in texts], ["ndcg_at_20"])
    assert [row.name for row in table.rows] == ["mine-transitions", "x"]
    _, rows, _ = done
    assert float(rows[0]["ndcg_at_20"]) == table.rows[0].cells[0].aod


def test_a_finished_study_runs_nothing_but_what_failed(project, done):
    study = project / "studies" / "mine.yaml"
    before = git(project, "for-each-ref", "refs/exps")
    study.write_text(
        "".join(line for line in STUDY.splitlines(keepends=True) if "Broken" not in line)
    )
    try:
        status, rows, errors = ended(project, start(project))
    finally:
        study.write_text(STUDY)
    assert (status, rows) == (0, done[1])
    assert errors.splitlines() == ["3 of 3 runs are there already"]
    assert git(project, "for-each-ref", "refs/exps") == before
