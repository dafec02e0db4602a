"""The entries of a study are those that its run writes into the cache."""

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.config.params import load_params
from dayahead.core.cache import Cache
from dayahead.core.errors import ConfigError
from dayahead.dataset.manifest import RawManifest, SourceRecord
from dayahead.sharing.study import StudyEntries, is_cached, study_entries
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.stage import train
from dayahead.train.study import Study
from support.dvc_remotes import folder_remote
from support.project_copy import change_params, copy_project
from support.window_folders import markov_days, write_window_folder

N_DAYS = 5
TINY = {
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 1, "batch_size": 16, "precision": "float32"},
    "memory": {"first_epochs": 1, "epochs": 1, "min_steps": 1},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "machine": {"keep_fits": "all"},
}
SEVERAL = {"processes": 2, "threads": 1, "device": "cpu"}
DROPOUT = {"architecture": "gpt2", "dropout": 0.1}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with its windows, nothing trained; the working folder is another one."""
    copy_project(tmp_path / "project", TINY)
    write_window_folder(tmp_path / "project/data/windows", markov_days(N_DAYS, 61, n_items=30))
    (tmp_path / "project/data/raw").mkdir()
    source = SourceRecord("synthetic", "synthetic", 0, "0" * 64, 1, 1, {})
    log = RawManifest("synthetic", datetime(2026, 1, 6, tzinfo=UTC), 1, 1, {}, (source,), ())
    log.write(tmp_path / "project/data/raw")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "project"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "project"


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"model": {"architecture": "gpt2"}, "machine": {"strict": True}},
            marks=pytest.mark.slow,
        ),
        {
            "model": {"architecture": "popularity"},
            "training": {"fit_last": False},
            "evaluation": {"horizon": 2},
        },
        pytest.param({"machine": {"strict": True}}, marks=pytest.mark.slow),
        pytest.param({"model": DROPOUT, "compute": SEVERAL}, marks=pytest.mark.slow),
        pytest.param(
            {"model": DROPOUT, "compute": {**SEVERAL, "shard_items": True},
             "machine": {"strict": True}}, marks=pytest.mark.slow
        ),
    ],
    ids=["strict", "baseline", "default, strict", "processes", "sharded, strict"],
)  # fmt: skip
def test_keys_are_those_that_a_run_writes(project, settings, monkeypatch):
    change_params(project, settings)
    with monkeypatch.context() as patch:
        patch.chdir(project)
        params = load_params()
        study = Study(
            params=params, windows=Path("data/windows"), results=Path("results"), models=Path("m")
        )
        train(study)
        train_baselines(study)
    entries = study_entries(project)
    caches = {kind: Cache(project / ".dayahead" / kind) for kind in ("fits", "evaluations")}
    written = {(kind, key) for kind, cache in caches.items() for key in cache.keys("")}
    assert set(entries.select(is_cached, all_fits=True)) == written
    n_runs = len(entries.fits)
    newest = [entry for entry in entries.select(is_cached, all_fits=False) if entry[0] == "fits"]
    assert len(newest) == n_runs
    assert len(written) > n_runs * N_DAYS


def test_the_newest_fit_that_is_there_is_selected_and_all_else():
    fits = [[("fits", "a1"), ("fits", "a2"), ("fits", "a3")], [("fits", "b1"), ("fits", "b2")]]
    study = StudyEntries([("windows", "w"), ("evaluations", "e")], fits)
    there = {("windows", "w"), ("fits", "a1"), ("fits", "a2"), ("fits", "b2")}
    assert study.select(there.__contains__, all_fits=False) == [
        *(("windows", "w"), ("fits", "a2"), ("fits", "b2"))
    ]
    assert set(study.select(there.__contains__, all_fits=True)) == there
    assert replace(study, fits=[[]]).select(there.__contains__, all_fits=False) == [
        ("windows", "w")
    ]


def test_without_data_the_command_that_brings_it_is_named(project):
    (project / "data/windows").rename(project / "elsewhere")
    with pytest.raises(ConfigError, match=r"data/windows is missing.*run `dvc pull`"):
        study_entries(project)


def test_a_pull_that_finds_no_fit_says_by_what_fits_are_found(project, monkeypatch):
    study = StudyEntries([("events", "a")], [[("fits", "b")]])
    monkeypatch.setattr("dayahead.sharing.study.study_entries", lambda _: study)
    monkeypatch.setattr("dayahead.sharing.remote.open_remote", lambda *_: folder_remote(project))
    done = CliRunner().invoke(app, ["cache", "pull"], catch_exceptions=False)
    assert "no fit of this study is there" in done.stdout
    assert f"torch {version('torch')}" in done.stdout
