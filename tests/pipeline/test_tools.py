"""Shell scripts behind make: MLflow's pages for this machine alone, a DVC cache for this user."""

import socket
import stat
from pathlib import Path

import pytest

from support.commands import PROGRAMS, run

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def ui(tmp_path):
    """Run tools/ui with an mlflow that only prints its arguments and environment."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlflow"
    program.write_text('#!/bin/sh\necho "called: $*"; env\n')
    program.chmod(0o755)
    (tmp_path / "mlflow.db").touch()
    programs = f"{tmp_path / 'bin'}:{PROGRAMS}"

    def ui(port="5050", **environment):
        return run(tmp_path, TOOLS / "ui", port, PATH=programs, **environment)

    return ui


@pytest.mark.long
def test_pages_are_served_to_this_machine_alone(ui, tmp_path):
    done = ui(MLFLOW_SERVER_ALLOWED_HOSTS="*", MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true")
    lines = done.stdout.splitlines()
    assert "called: ui --host 127.0.0.1 --port 5050 --workers 1" in lines
    assert {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false",
        f"MLFLOW_BACKEND_STORE_URI=sqlite:///{tmp_path}/mlflow.db",
    } <= set(lines)
    assert "ALLOWED_HOSTS" not in done.stdout
    assert "DISABLE_SECURITY" not in done.stdout


def test_a_busy_port_is_named_with_the_cure(ui):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = ui(port)
    assert done.returncode == 1
    assert "called" not in done.stdout
    assert done.stderr == f"error: port {port} is in use or not allowed; run make ui PORT=5001\n"


@pytest.mark.slow
def test_no_password_is_an_argument_or_printed(ui):
    printed = ui(MLFLOW_TRACKING_URI="postgresql://me:SECRET@host/db").stdout
    (called,) = [line for line in printed.splitlines() if line.startswith("called")]
    assert "SECRET" not in called
    printed = ui(MLFLOW_TRACKING_URI="https://me:SECRET@host/x?token=SECRET").stdout
    assert printed == "The runs are on your tracking server: https://***@host/x?***\n"
    printed = ui(MLFLOW_TRACKING_URI="HTTPS://me:SEC/RET@host/x").stdout
    assert printed == "The runs are on your tracking server: HTTPS://***\n"


def test_a_store_without_pages_is_refused_without_its_password(ui):
    """MLflow would print the address."""
    done = ui(MLFLOW_TRACKING_URI="ftp://me:SECRET@host/db")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: MLFLOW_TRACKING_URI: ftp://***@host/db: ")


@pytest.fixture
def repository(tmp_path):
    """A Git repository with DVC, which uses no cache outside it."""
    run(tmp_path, "git", "init", "-q")
    run(tmp_path, "dvc", "init", "-q", DVC_SITE_CACHE_DIR=str(tmp_path / "aside"))
    return tmp_path


@pytest.mark.slow
def test_dvc_gets_a_cache_of_this_user_alone(repository):
    assert run(repository, TOOLS / "private-cache").returncode == 0
    cache = repository / ".dvc" / "tmp" / "site"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert run(repository, "dvc", "status").returncode == 0
    assert list(cache.iterdir())
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    changes = run(repository, "git", "status", "--porcelain", "-uall").stdout
    assert ".dvc/config.local" not in changes


@pytest.mark.long
def test_a_chosen_cache_is_left_alone(repository):
    with (repository / ".dvc" / "config").open("a") as config:
        config.write("[core]\n    site_cache_dir = /mine\n")
    assert run(repository, TOOLS / "private-cache").returncode == 0
    assert not (repository / ".dvc" / "config.local").exists()


def test_without_dvc_nothing_is_done(tmp_path):
    assert run(tmp_path, TOOLS / "private-cache").returncode == 0
    assert list(tmp_path.iterdir()) == []
