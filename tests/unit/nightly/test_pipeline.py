"""Stages as processes: how their failures are classified."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from dayahead.core.errors import ConfigError, DataError, SourceError, UnreachableError, WindowError
from dayahead.core.project import stage_failure, stage_lock
from dayahead.nightly import pipeline as running
from dayahead.nightly.pipeline import (
    Pipeline,
    RefusedDataError,
    RetryLaterError,
    StageError,
)
from dayahead.preprocess.report import DefectsError
from dayahead.preprocess.stage import LateRowsError
from support.waiting import wait_for_file


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose `dvc repro` is one failing stage."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


def failing(monkeypatch, stage, error, status=255):
    def run(command, folder):
        if error is not None:
            with pytest.raises(type(error)), stage_lock(stage):
                raise error
        return status

    monkeypatch.setattr(running, "_run", run)


@pytest.mark.parametrize(
    ("stage", "error", "expected"),
    [
        ("download", UnreachableError("no route"), RetryLaterError),
        ("download", SourceError("too many defects"), RefusedDataError),
        ("download", DataError("disk full"), StageError),
        ("preprocess", LateRowsError("late rows"), RefusedDataError),
        ("preprocess", DefectsError("ids are used again"), RefusedDataError),
        ("preprocess", DataError("no worker started"), StageError),
        ("preprocess", WindowError("damaged"), StageError),
        ("preprocess", ConfigError("unknown"), StageError),
        ("train", DataError("damaged"), StageError),
    ],
)
def test_failures_are_classified(project, monkeypatch, stage, error, expected):
    failing(monkeypatch, stage, error)
    with pytest.raises(expected, match=str(error)):
        Pipeline(project).train()


STAGES = """
stages:
  download: {cmd: echo fetched > raw, outs: [raw]}
  preprocess: {cmd: cat raw > windows, deps: [raw], outs: [windows]}
  train: {cmd: exit 3, deps: [windows]}
"""


@pytest.mark.slow
def test_a_night_shows_stages_and_errors_and_no_hint_of_dvc(project, capfd):
    """`dvc repro` itself gives the hints: else the test could not fail."""
    (project / "dvc.yaml").write_text(STAGES)
    for words in ("git init -q", f"{sys.executable} -m dvc init -q"):
        subprocess.run(words.split(), cwd=project, check=True)
    Pipeline(project).update_data()
    with pytest.raises(StageError, match="dvc repro ended with status 255"):
        Pipeline(project).train()
    _, shown = capfd.readouterr()
    assert "Running stage 'download'" in shown
    assert "failed to reproduce 'train'" in shown
    assert (project / "windows").read_text() == "fetched\n"
    (project / "dvc.lock").unlink()  # the hints follow a change of it
    by_hand = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "--force", "preprocess"],
        cwd=project, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for hint in ("To track the changes", "auto staging", "dvc push"):
        assert hint in by_hand.stdout
        assert hint not in shown


def test_another_run_at_work_is_a_reason_to_wait(project, monkeypatch):
    failing(monkeypatch, "train", None, status=75)
    with pytest.raises(RetryLaterError, match="another run"):
        Pipeline(project).train()


@pytest.mark.parametrize("stage", ["download", "train"])
def test_a_night_waits_for_a_stage_that_runs_already(project, monkeypatch, stage):
    """A plain `dvc repro` holds no lock of `tools/alone`, only that of its stage."""
    failing(monkeypatch, "train", None, status=0)
    with stage_lock(stage), pytest.raises(RetryLaterError, match=f"in the stage {stage}"):
        Pipeline(project).train()
    Pipeline(project).train()


def test_a_failure_of_an_earlier_run_is_forgotten(project, monkeypatch):
    with pytest.raises(SourceError), stage_lock("download"):
        raise SourceError("old")
    assert stage_failure(project, "download").exists()
    failing(monkeypatch, "train", None)
    with pytest.raises(StageError, match="status 255"):
        Pipeline(project).train()


def test_a_failure_file_is_gone_when_the_stage_succeeds(project):
    with pytest.raises(SourceError), stage_lock("download"):
        raise SourceError("https://me:secret@host/x")
    assert "secret" not in stage_failure(project, "download").read_text()
    with stage_lock("download"):
        assert not stage_failure(project, "download").exists()


STAGE = """
import os, time
from pathlib import Path
try:
    Path("pid").write_text(str(os.getpid()))
    time.sleep(60)
except KeyboardInterrupt:
    Path("ended in order").touch()
"""


@pytest.fixture
def _interruptible():
    """Python's own handler of SIGINT, which is ignored in a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_a_signal_ends_the_stage_too(project, monkeypatch):
    """As DVC starts it: a shell between, which hands on no SIGTERM."""
    (project / "stage.py").write_text(STAGE)
    stages = []

    def interrupted(seconds):
        if (project / "pid").exists() and (pid := (project / "pid").read_text()):
            stages.append(psutil.Process(int(pid)))
            signal.raise_signal(signal.SIGINT)
        time.sleep(seconds)

    monkeypatch.setattr(running, "time", SimpleNamespace(sleep=interrupted))
    with pytest.raises(KeyboardInterrupt):
        running._run(["sh", "-c", f"{sys.executable} stage.py; exit $?"], project)
    wait_for_file(project / "ended in order")
    _, alive = psutil.wait_procs(stages, 60)
    assert alive == []
