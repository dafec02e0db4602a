import shutil
import subprocess
import sys

import pytest

from dayahead.core.errors import ComparisonError
from dayahead.tracking.run_lookup import run_of
from dayahead.tracking.runs import stage_run
from support.git_projects import commit_all, git
from support.tracked_stages import run_stage, runs_of


@pytest.fixture
def results(cold_project):
    folder = cold_project / "results"
    (folder / "ranks").mkdir(parents=True)
    (folder / "ranks/2019-10-01.parquet").write_text("ranks")
    (folder / "windows.csv").write_text("window\n")
    (folder / "lists.csv").write_text("window\n")
    return folder


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


EXPECTED = ["lists.csv", "ranks/2019-10-01.parquet", "windows.csv"]


def test_a_folder_is_used_as_it_is(results, tmp_path):
    assert run_of(str(results), tmp_path / "into").folder == results
    assert run_of(str(results.parent), tmp_path / "into").folder == results


LOCK = """schema: '2.0'
stages:
  preprocess:
    cmd: x
    params: {params.yaml: {window.unit: day, preprocess: {verify: true}}}
  train:
    cmd: x
    params: {params.yaml: {dataset: g1, window.last: '2026-01-03', training: {seed: 3}}}
  old: {cmd: x}
"""
SETTINGS = {
    "window.unit": "day",
    "preprocess.verify": True,
    "dataset": "g1",
    "window.last": "2026-01-03",
    "training.seed": 3,
}


def test_the_settings_of_a_folder_are_those_of_its_lock_file(results, tmp_path):
    assert run_of(str(results), tmp_path).settings is None
    (results.parent / "dvc.lock").write_text(LOCK)
    assert run_of(str(results), tmp_path).settings == SETTINGS
    assert run_of(str(results.parent), tmp_path).settings == SETTINGS
    for text in ("", "stages: 3", "stages: {train: {params: 1}}", "a: [", "stages: {}"):
        (results.parent / "dvc.lock").write_text(text)
        assert run_of(str(results), tmp_path).settings is None


@pytest.mark.long
def test_an_mlflow_run_leads_to_its_train_stage(store, results, params, tmp_path):
    with stage_run("train", params) as run:
        run.log_artifact(results / "ranks")
        run.log_artifact(results / "windows.csv")
        run.log_artifact(results / "lists.csv")
    run_stage("aggregate")
    for stage, (found,) in runs_of(store).items():
        into = run_of(found.info.run_id, tmp_path / stage)
        assert names(into.folder) == EXPECTED
        assert into.settings["training.seed"] == params.training.seed
        assert into.settings["model.architecture"] == params.model.architecture
        assert into.settings["evaluation.cutoffs"] == [*params.evaluation.cutoffs]


def test_an_mlflow_run_of_an_earlier_version_has_no_lists(store, results, params, tmp_path):
    with stage_run("train", params) as run:
        run.log_artifact(results / "ranks")
        run.log_artifact(results / "windows.csv")
    [found] = runs_of(store)["train"]
    assert names(run_of(found.info.run_id, tmp_path / "into").folder) == EXPECTED[1:]


@pytest.fixture
def repository(cold_project, results, monkeypatch):
    """A Git repository with the results in DVC's cache, tagged `first`."""
    (cold_project / ".dvc").rmdir()
    (cold_project / "dvc.yaml").unlink()
    (cold_project / "dvc.lock").write_text(LOCK)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    git(cold_project, "init", "--quiet")
    # In one process: DVC takes a second to import.
    commands = (
        "['init', '-q'], ['add', '-q', 'results/ranks', 'results/windows.csv', 'results/lists.csv']"
    )
    script = f"from dvc.cli import main; raise SystemExit(any([main(c) for c in ({commands})]))"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    commit_all(cold_project)
    git(cold_project, "tag", "first")
    git(cold_project, "remote", "add", "origin", ".")


NO_REVISIONS = {
    "HEAD:results/windows.csv.dvc": "no commit",
    "HEAD^{tree}": "no commit",
    "HEAD:": "no commit",
    "HEAD~9": "unknown",
    ":/nothing": "unknown",
    "\udcff": "codec can.t",
    "x" * 300: "unknown",
    "x" * 5000: "x",
}


@pytest.mark.long
@pytest.mark.usefixtures("repository")
def test_a_git_revision_leads_into_the_cache_and_what_is_none_is_an_error(tmp_path):
    found = run_of("first", tmp_path / "into")
    assert names(found.folder) == ["dvc.lock", *EXPECTED]
    assert found.settings == SETTINGS
    for name, message in NO_REVISIONS.items():
        with pytest.raises(ComparisonError, match=f"dvc: .*{message}"):
            run_of(name, tmp_path / "none")


@pytest.mark.long
@pytest.mark.usefixtures("repository")
def test_results_that_nobody_pushed_are_an_error_that_says_what_to_push(tmp_path):
    shutil.rmtree(tmp_path / ".dvc" / "cache")
    with pytest.raises(ComparisonError, match=r"first is known, .*on its remote.*`dvc exp push`"):
        run_of("first", tmp_path / "into")


@pytest.mark.long
@pytest.mark.usefixtures("repository")
def test_a_revision_without_a_lock_file_has_no_results(tmp_path):
    git(tmp_path, "rm", "-q", "results/ranks.dvc", "dvc.lock")
    commit_all(tmp_path)
    with pytest.raises(ComparisonError, match=r"dvc: HEAD has no dvc\.lock.*commit it after"):
        run_of("HEAD", tmp_path / "into")


def test_the_error_says_what_was_tried(store, tmp_path):
    with pytest.raises(ComparisonError, match=r"nothing: no results found.*folder: .*dvc: "):
        run_of("nothing", tmp_path / "into")
    with pytest.raises(ComparisonError, match="mlflow: "):
        run_of("0" * 32, tmp_path / "into")


def test_an_error_without_a_message_is_named_by_its_type(monkeypatch, tmp_path):
    def timing_out(*_, **__):
        raise TimeoutError

    monkeypatch.setattr("dvc.api.DVCFileSystem", timing_out)
    with pytest.raises(ComparisonError, match="dvc: TimeoutError"):
        run_of("nothing", tmp_path / "into")
