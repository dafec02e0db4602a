"""The project and its cache are found from any folder; a stage runs once at a time."""

import subprocess
import sys

import pytest

from dayahead.core.errors import BusyError, ConfigError
from dayahead.core.project import cache_root, project_root, stage_lock

HOLDER = """
from dayahead.core.project import stage_lock
with stage_lock("train"):
    print("held", flush=True)
    input()
"""


def test_in_a_copy_made_by_dvc_the_main_project_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert project_root() == tmp_path
    assert cache_root() == tmp_path / ".dayahead"


def test_a_clone_can_share_the_cache_of_another_project(tmp_path, monkeypatch):
    """`dvc exp run` sets DVC_ROOT to the clone itself, whatever it was before."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "clone"))
    monkeypatch.setenv("DAYAHEAD_ROOT", str(tmp_path / "main"))
    assert cache_root() == tmp_path / "main" / ".dayahead"
    monkeypatch.setenv("DAYAHEAD_ROOT", "")
    assert cache_root() == tmp_path / "clone" / ".dayahead"


def test_from_a_folder_inside_the_project_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert project_root() == tmp_path


def test_outside_a_project_it_is_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert project_root() == tmp_path


def test_a_second_process_names_the_first_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        line = rf"process {holder.pid} still runs the stage train .* \(`kill {holder.pid}`\)"
        with pytest.raises(BusyError, match=line), stage_lock("train"):
            pass
        with stage_lock("aggregate"):
            pass
        holder.kill()
    with stage_lock("train"):
        pass


def test_in_a_shallow_clone_a_stage_of_a_copy_says_how_to_get_the_history(tmp_path, monkeypatch):
    """DVC would run it all, end with 0 and leave no experiment."""
    source, clone, copy = (tmp_path / name for name in ("source", "clone", "copy"))
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", source], check=True)
    for message in ("one", "two"):
        commit = ["commit", "-q", "--allow-empty", "-m", message]
        subprocess.run(["git", "-C", source, *who, *commit], check=True)
    subprocess.run(["git", "clone", "-q", "--depth=1", source.as_uri(), clone], check=True)
    copy.mkdir()
    monkeypatch.setenv("DVC_ROOT", str(clone))
    monkeypatch.chdir(copy)
    with pytest.raises(ConfigError, match="git fetch --unshallow"), stage_lock("train"):
        pass
    monkeypatch.chdir(clone)  # `dvc exp run` itself keeps it
    with stage_lock("train"):
        pass
    monkeypatch.chdir(copy)
    subprocess.run(["git", "-C", clone, "fetch", "-q", "--unshallow"], check=True)
    with stage_lock("train"):
        pass
