"""Guarded commands: each ends with its parent, and with it all that it started."""

import os
import subprocess
import sys

import psutil

from dayahead.guard import start_guarded
from dayahead.tune.experiment import hold
from support.waiting import wait_for_file

STAGE = """
import sys, time
from pathlib import Path
try:
    Path("started").touch()
    time.sleep(60)
except KeyboardInterrupt:
    Path("ended in order").touch()
    sys.exit(3)
"""
"""As a stage of DVC ends: a shell between, SIGINT as KeyboardInterrupt."""
PARENT = """
import os, sys, time
from pathlib import Path
from dayahead.guard import start_guarded
command = ["sh", "-c", sys.executable + " stage.py; exit $?"]
child = start_guarded(command, Path(), os.environ, sys.stderr)
time.sleep(60)
"""


def guarded(folder, *command):
    return start_guarded(command, folder, os.environ, sys.stderr)


def test_the_exit_status_is_that_of_the_command(tmp_path):
    with guarded(tmp_path, sys.executable, "-c", "raise SystemExit(7)") as process:
        assert process.wait(60) == 7


def test_a_command_is_stopped_as_by_ctrl_c(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE)
    process = guarded(tmp_path, sys.executable, "stage.py")
    wait_for_file(tmp_path / "started")
    process.stdin.close()
    assert process.wait(60) == 3
    assert (tmp_path / "ended in order").exists()


def test_a_parent_that_is_killed_leaves_nothing_running(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path)
    wait_for_file(tmp_path / "started")
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    wait_for_file(tmp_path / "ended in order")
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_study_is_locked_for_as_long_as_an_experiment_of_it_runs(tmp_path):
    lock = hold(tmp_path / "s.lock")
    process = start_guarded(["sleep", "60"], tmp_path, os.environ, sys.stderr, [lock])
    os.close(lock)
    assert hold(tmp_path / "s.lock") is None
    process.stdin.close()
    assert process.wait(60) != 0
    freed = hold(tmp_path / "s.lock")
    assert freed is not None
    os.close(freed)
