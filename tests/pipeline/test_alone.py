"""tools/alone: one command per project, which does not wait for a process that DVC mistakes."""

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import commands
from support.commands import PROGRAMS

ALONE = Path(__file__).parents[2] / "tools" / "alone"
STAGE = "stages: {write: {cmd: 'echo done > out', outs: [out]}}"


@pytest.fixture
def project(tmp_path):
    """A folder that looks like a DVC project."""
    for name in ("site", ".dvc/tmp"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def environment_of(folder):
    return {"HOME": str(folder / "site"), "DVC_SITE_CACHE_DIR": str(folder / "site")}


def run(folder, *command, **environment):
    """Return status, standard output and standard error of a command."""
    done = commands.run(folder, *command, **environment_of(folder) | environment)
    return done.returncode, done.stdout, done.stderr


@contextmanager
def holder(folder, **environment):
    """A command that holds the lock."""
    command = [ALONE, "sh", "-c", "echo started; exec sleep 60"]
    given = {"PATH": PROGRAMS} | environment_of(folder) | environment
    process = subprocess.Popen(command, cwd=folder, env=given, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "started\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_stale_lock_that_names_a_living_process_holds_nothing_up(project):
    """As after a kill, where the number belongs to another process on the next machine."""
    status, _, errors = run(project, "dvc", "init", "--quiet", "--no-scm", "--force")
    assert status == 0, errors
    (project / "dvc.yaml").write_text(STAGE)
    owner = {"pid": os.getpid(), "cmd": "dvc repro --verbose"}
    stale = json.dumps({"write": {str(project / "out"): owner}, "read": {}})
    (project / ".dvc" / "tmp" / "rwlock").write_text(stale)
    for _ in range(2):  # as often as one likes
        status, _, errors = run(project, "dvc", "repro")
        assert status != 0
        assert f"blocked by:\n  (PID {os.getpid()})" in errors
    status, _, errors = run(project, ALONE, "dvc", "repro")
    assert status == 0, errors
    assert (project / "out").read_text() == "done\n"


def test_a_second_command_is_refused_with_the_owner_of_the_lock(project):
    (project / "below").mkdir()
    with holder(project, SLURM_JOB_ID="12") as process:
        lock = project / ".dvc" / "tmp" / "rwlock"
        lock.write_text("of the first")
        for folder in (project, project / "below"):
            status, output, errors = run(folder, ALONE, "echo", "second")
            owner = f"process {process.pid} of {os.uname().nodename}, Slurm job 12"
            assert errors.startswith(f"error: {project}: {owner} is at work here; wait for it")
            assert (status, output, errors.count("\n")) == (75, "", 1)
        assert lock.exists()
    assert run(project, ALONE, "echo", "second") == (0, "second\n", "")


def test_the_command_gets_signals_and_its_status_is_returned(project):
    with holder(project) as process:
        process.terminate()
        assert process.wait(timeout=60) == -15
    assert run(project, ALONE, "sh", "-c", "exit 143") == (143, "", "")
    status, _, errors = run(project, ALONE, "no-such-program")
    assert (status, "no-such-program" in errors) == (127, True)


def test_mistakes_are_named_in_one_line(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    status, _, errors = run(outside, ALONE, "echo")
    assert (status, errors) == (
        1,
        f"error: {outside} is in no DVC project; change to the project's folder\n",
    )
    assert list(outside.iterdir()) == []
    status, _, errors = run(project, ALONE)
    assert (status, errors.count("\n"), "tools/alone dvc repro" in errors) == (2, 1, True)


def test_a_folder_that_cannot_be_locked_is_named(project):
    """As without flock, or on a file system without locks."""
    programs = project / "bin"
    programs.mkdir()
    (programs / "flock").write_text("#!/bin/sh\nexit 66\n")
    (programs / "flock").chmod(0o755)
    status, output, errors = run(project, ALONE, "echo", PATH=f"{programs}:{PROGRAMS}")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith(f"error: {project}/.dayahead/alone.lock cannot be locked")
