"""What the verbs of make start: MLflow's pages for this machine alone, a cache of one's own."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def run(folder, *command, path=PROGRAMS, **environment):
    given = {"PATH": path, "HOME": str(folder), **environment}
    return subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, check=False
    )


@pytest.fixture
def ui(tmp_path):
    """Run tools/ui with an mlflow that only says how it was called."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlflow"
    program.write_text('#!/bin/sh\necho "called: $*"; env\n')
    program.chmod(0o755)
    (tmp_path / "mlflow.db").touch()
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return lambda **environment: run(tmp_path, TOOLS / "ui", "5050", path=path, **environment)


def test_the_pages_are_for_this_machine_alone(ui, tmp_path):
    said = ui(MLFLOW_SERVER_ALLOWED_HOSTS="*", MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true")
    lines = said.stdout.splitlines()
    assert "called: ui --host 127.0.0.1 --port 5050" in lines
    assert {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false",
        f"MLFLOW_BACKEND_STORE_URI=sqlite:///{tmp_path}/mlflow.db",
    } <= set(lines)
    assert "ALLOWED_HOSTS" not in said.stdout
    assert "DISABLE_SECURITY" not in said.stdout


def test_no_password_is_among_the_arguments_or_told(ui):
    said = ui(MLFLOW_TRACKING_URI="postgresql://me:SECRET@host/db").stdout
    (called,) = [line for line in said.splitlines() if line.startswith("called")]
    assert "SECRET" not in called
    said = ui(MLFLOW_TRACKING_URI="https://me:SECRET@host/x?token=SECRET")
    assert said.stdout == "The runs are on your tracking server: https://***@host/x?***\n"


def private_cache(folder, **environment):
    done = run(folder, TOOLS / "private-cache", **environment)
    assert done.returncode == 0, done.stderr
    told = run(folder, "dvc", "config", "--local", "core.site_cache_dir").stdout.strip()
    return Path(told) if told else None


def test_dvc_gets_a_cache_that_nobody_else_may_enter(tmp_path):
    run(tmp_path, "git", "init", "-q")
    run(tmp_path, "dvc", "init", "-q", DVC_SITE_CACHE_DIR=str(tmp_path / "aside"))
    cache = private_cache(tmp_path)
    assert cache == tmp_path / ".dvc" / "tmp" / "site"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert run(tmp_path, "dvc", "status").returncode == 0
    assert list(cache.iterdir())
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert ".dvc/config.local" not in run(tmp_path, "git", "status", "--porcelain", "-uall").stdout


def test_a_cache_that_was_chosen_stays(tmp_path):
    run(tmp_path, "git", "init", "-q")
    run(tmp_path, "dvc", "init", "-q", DVC_SITE_CACHE_DIR=str(tmp_path / "aside"))
    run(tmp_path, "dvc", "config", "core.site_cache_dir", "/mine")
    assert private_cache(tmp_path) is None


def test_without_dvc_there_is_nothing_to_do(tmp_path):
    assert run(tmp_path, TOOLS / "private-cache").returncode == 0
