"""Make targets are listed; a failed set-up leaves nothing behind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXED = {"repro", "test", "check", "test-slow", "bench", "ui", "clean"}
"""Targets that the documentation promises."""


@pytest.fixture
def project(tmp_path):
    """The files that set-up needs, without an environment."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def make(folder, *words):
    """Run make as typed at a prompt: no variable of a make that runs these tests reaches it."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = ["make", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def interpreter(path, version, then="exit 1"):
    """Write a program that claims to be this version of Python."""
    path.write_text(f"#!/bin/sh\ncase $2 in *version*) echo {version};; *) {then};; esac\n")
    path.chmod(0o755)
    return path


def test_make_alone_lists_every_target(project):
    [phony] = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = re.findall(r"^  make (\S+) +\S", make(project).stdout, re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())
    assert set(listed) >= FIXED


def test_descriptions_are_printed_as_a_reader_types_them(project):
    printed = make(project, "help").stdout
    assert "$DAYAHEAD_DATA" in printed
    assert "$$" not in printed


def test_another_python_version_is_an_error_of_one_line_and_leaves_nothing(project):
    python = interpreter(project / "python3.12", "3.12.1")
    done = make(project, "test", f"PYTHON={python}")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "needs Python 3.11" in line
    assert f"{python} here is 3.12.1" in line
    assert "make test PYTHON=" in line
    assert not (project / ".venv").exists()


def test_a_missing_python_is_named(project):
    done = make(project, "repro", "PYTHON=nonesuch")
    assert "there is no nonesuch here" in done.stderr


def test_a_failed_set_up_leaves_no_stamp(project):
    """Nor does the stamp of an older set-up survive."""
    programs = project / ".venv" / "bin"
    programs.mkdir(parents=True)
    interpreter(programs / "python", "3.11.7", then="case $1 in tools/*) exit 1;; esac")
    stamp = project / ".venv" / ".ready"
    stamp.touch()
    (project / "requirements.txt").write_text("changed\n")
    assert make(project, "test").returncode != 0
    assert not stamp.exists()


PIP = r"""
echo 'Collecting torch==2.13.0'
echo '  Downloading torch-2.13.0-cp311.whl (526.1 MB)'
for n in $(seq 30); do echo "Processing /wheels/a$n.whl"; done
echo 'WARNING: an index is ignored' >&2
echo '  Building wheel for a (pyproject.toml): started'
echo 'Installing collected packages: a, b, torch'
case $* in *broken*) echo 'ERROR: no such package: broken' >&2; exit 1;; esac
"""


@pytest.mark.parametrize("package", ["a", "broken"])
def test_the_set_up_says_what_it_is_doing(project, package):
    """Step by step, and what pip is waiting for; of its messages only errors."""
    shell = project / "sh-pip"
    shell.write_text(f"#!/bin/sh\n{PIP}")
    shell.chmod(0o755)
    start = (
        f"import sys; sys.executable = {str(shell)!r}; sys.path.insert(0, 'tools'); import install"
    )
    command = [sys.executable, "-c", f"{start}; sys.exit(install.main())", package]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "  downloading torch-2.13.0-cp311.whl, 526.1 MB ...",
        "  25 packages found ...",
        "  building a ...",
        "  installing 3 packages ...",
    ]
    is_broken = package == "broken"
    assert done.returncode == is_broken
    assert done.stderr == "ERROR: no such package: broken\n" * is_broken


def test_every_step_of_the_set_up_is_announced(project):
    programs = project / ".venv" / "bin"
    programs.mkdir(parents=True)
    interpreter(programs / "python", "3.11.7", then="exit 0")
    printed = make(project, ".venv/.ready").stdout
    n_packages = (project / "requirements.txt").read_text().count("==")
    assert re.findall("step ([0-9]) of ([0-9]): ", printed) == [(str(n), "4") for n in range(1, 5)]
    assert f"step 2 of 4: the {n_packages} packages" in printed


def test_a_ready_environment_is_not_set_up_again(project):
    (project / ".venv").mkdir()
    (project / ".venv" / ".ready").touch()
    done = make(project, "--dry-run", "test")
    assert done.stdout.splitlines() == ['tools/check-place "test" ""', "python -m pytest"]


def test_a_peer_is_set_up_beside_our_environment_once(project):
    (project / ".venv").mkdir()
    (project / ".venv" / ".ready").touch()
    (project / "benchmarks").mkdir()
    for name in ("transformers4rec", "rectools"):
        shutil.copy(ROOT / "benchmarks" / f"{name}.txt", project / "benchmarks")
    ready = project / "build" / "peers" / "rectools" / ".ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    printed = make(project, "--dry-run", "bench-peers").stdout
    made = set(re.findall(r"-m venv --clear (\S+)", printed))
    assert made == {"build/peers/transformers4rec"}
    installed = re.findall(r"(\S+)/bin/python tools/install.py --requirement (\S+)", printed)
    assert installed == [("build/peers/transformers4rec", "benchmarks/transformers4rec.txt")]
    assert printed.splitlines()[-1] == "python -W ignore benchmarks/peers.py"


def environment(folder, owner):
    """What is there of an environment that was set up in the folder `owner`."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "pip").write_text(f"#!{owner}/.venv/bin/python3.11\n")
    interpreter(programs / "pytest", "", then="echo tested")
    (folder / ".venv" / ".ready").touch()


def error_of(done):
    assert (done.stderr.count("error:"), done.returncode) == (1, 2), done.stderr + done.stdout
    return next(line for line in done.stderr.splitlines() if line.startswith("error:"))


def test_a_moved_project_is_named_with_the_cure(project):
    environment(project, "/somewhere/else")
    error = error_of(make(project, "test"))
    assert ".venv belongs to /somewhere/else; run make clean" in error


def test_a_folder_without_git_is_refused_before_anything_is_set_up(project):
    shutil.rmtree(project / ".git")
    error = error_of(make(project, "repro", "PYTHON=nonesuch"))  # nor does set-up look for Python
    assert "git init && git add . && git commit" in error
    assert not (project / ".venv").exists()


def test_another_python_than_that_of_the_environment_is_refused(project):
    environment(project, project)
    assert "needs Python 3.11" in error_of(make(project, "test", "PYTHON=nonesuch"))
    other = interpreter(project / "other", "3.11.9", then=f"echo {project / 'other'}")
    error = error_of(make(project, "test", f"PYTHON={other}"))
    assert f"not from {other}; run make clean" in error


def test_an_environment_in_its_place_is_used(project):
    environment(project, project)
    same = make(project, "--dry-run", "test", f"PYTHON={sys.executable}")
    assert (same.returncode, same.stderr) == (0, "")
    assert make(project, ".place", f"PYTHON={sys.executable}").returncode == 0


def test_the_interpreter_of_an_environment_is_found():
    """`make` inside .venv must not build .venv from itself."""
    command = [str(ROOT / "tools" / "python311"), sys.executable]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found) == Path(sys._base_executable)
    assert Path(found) != Path(sys.executable) or sys.prefix == sys.base_prefix
