import os
import subprocess
import sys

import psutil
import pytest

from dayahead.tracking.pipeline_run import (
    EXECUTION,
    identity_of,
    journal_for,
    journals_of,
    origin_tags,
    pipeline_run_key,
)

# Two "stages" that end when their standard input does, with the launcher.
LAUNCH = """
import subprocess, sys
stages = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2)]
print(*(stage.pid for stage in stages), flush=True)
stages[0].wait()
"""


def test_an_experiment_is_an_execution(monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "a/b c")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "0123456789")
    assert pipeline_run_key() == "a_b_c-0123456"


def test_a_stage_that_a_launcher_started_is_told_its_execution(monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "a")
    monkeypatch.setenv(EXECUTION, "dvc-71-1.50")
    assert pipeline_run_key() == "dvc-71-1.50"


@pytest.mark.parametrize("launcher", ["dvc", "other"])
def test_stages_of_one_dvc_process_are_one_execution(cold_project, monkeypatch, launcher):
    monkeypatch.delenv("DVC_EXP_NAME")
    script = cold_project / launcher
    script.write_text(LAUNCH)
    launched = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        keys = [pipeline_run_key(int(pid)) for pid in launched.stdout.readline().split()]
    finally:
        launched.kill()
        launched.communicate()
    assert keys[0].startswith("dvc-" if launcher == "dvc" else "alone-")
    assert (keys[0] == keys[1]) == (launcher == "dvc")


def test_setting_the_clock_does_not_make_it_another_execution(monkeypatch):
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    key, boot_time = pipeline_run_key(), psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_time - 3600)
    assert pipeline_run_key() == key


def test_a_stage_started_again_goes_on_unless_its_inputs_changed(cold_project):
    first = journal_for(cold_project, "train", "f1")
    first.append("start", fingerprint="f1")
    assert journal_for(cold_project, "train", "f1") == first
    anew = journal_for(cold_project, "train", "f2")
    assert anew.path.parent.name == "lofty-sail-2"
    anew.append("start", fingerprint="f2")
    assert journal_for(cold_project, "aggregate", "f3").path.parent == anew.path.parent


def test_an_execution_has_one_identity(tmp_path):
    assert identity_of(tmp_path / "a") == identity_of(tmp_path / "a")
    assert identity_of(tmp_path / "a") != identity_of(tmp_path / "b")


def test_journals_come_in_the_order_of_their_starts(cold_project):
    for at, stage in ((2, "aggregate"), (1, "train")):
        journal = journal_for(cold_project, stage, None)
        journal.append("start", at=at)
    assert [journal.stage for journal in journals_of(journal.path.parent)] == ["train", "aggregate"]


def _commit():
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)


def test_tags_lead_back(cold_project, monkeypatch):
    monkeypatch.delenv("DVC_EXP_NAME")
    assert "git.commit" not in origin_tags("train")
    _commit()
    tags = origin_tags("train")
    assert tags["git.dirty"] == "false"
    assert f"git checkout {tags['git.commit']}" in tags["mlflow.note.content"]
    (cold_project / "params.yaml").write_text("changed")
    assert origin_tags("train")["git.dirty"] == "true"
    monkeypatch.setenv("DVC_EXP_NAME", "lofty-sail")
    assert "dvc exp apply lofty-sail" in origin_tags("train")["mlflow.note.content"]


def test_tags_need_no_git(cold_project, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    assert "git.commit" not in origin_tags("train")
