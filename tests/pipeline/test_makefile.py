"""Make targets are listed; a failed set-up leaves nothing behind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import run

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
FIXED = {"repro", "test", "check", "test-long", "test-slow", "bench", "ui", "clean"}
"""Targets that the documentation promises."""


@pytest.fixture
def project(tmp_path):
    """The files that set-up needs, without an environment."""
    for file in (ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("requirements*.txt")):
        shutil.copy(file, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def make(folder, *words):
    """Run make as typed at a prompt: no variable of a make that runs these tests reaches it."""
    return run(folder, "make", *words, PATH=os.environ["PATH"])


def interpreter(path, version, then="exit 1"):
    """Write a program that claims to be this version of Python."""
    path.write_text(f"#!/bin/sh\ncase $2 in *version*) echo {version};; *) {then};; esac\n")
    path.chmod(0o755)
    return path


def test_make_alone_lists_every_target(project):
    [phony] = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    listed = re.findall(r"^  make (\S+) +\S", make(project).stdout, re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())
    assert set(listed) >= FIXED


def test_descriptions_are_printed_as_a_reader_types_them(project):
    printed = make(project, "help").stdout
    assert "$DAYAHEAD_DATA" in printed
    assert "$$" not in printed


def test_another_python_version_is_an_error_of_one_line_and_leaves_nothing(project):
    python = interpreter(project / "python3.10", "3.10.13")
    done = make(project, "test", f"PYTHON={python}")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "needs Python 3.11 or later" in line
    assert f"{python} here is 3.10.13" in line
    assert "uv python install 3.13" in line
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


STAMPS = (".uv-ready", ".ready", ".dev-ready")
"""In the order in which the set-up writes them."""


def set_up(folder, *stamps):
    """Leave these stamps, which are newer than the lock."""
    (folder / ".venv").mkdir(exist_ok=True)
    for stamp in stamps:
        (folder / ".venv" / stamp).touch()


def steps_of(project, verb):
    """What the set-up says while each of its commands succeeds, and those commands."""
    programs = project / ".venv" / "bin"
    programs.mkdir(parents=True)
    interpreter(programs / "python", "3.11.7", then=f"echo $* >> {project}/calls")
    interpreter(programs / "dvc", "", then="exit 0")
    steps = re.findall("^Setting up .venv: (.*)", make(project, verb).stdout, re.MULTILINE)
    return steps, (project / "calls").read_text()


def test_every_step_of_the_set_up_is_announced(project):
    steps, calls = steps_of(project, ".venv/.dev-ready")
    n_run, n_dev = (
        len(re.findall("^[a-z]", (project / f"requirements{kind}.txt").read_text(), re.MULTILINE))
        for kind in ("", "-dev")
    )
    assert steps == [
        "pip and uv",
        f"the {n_run} packages of requirements.txt",
        "Dayahead and DVC's cache",
        f"the {n_dev} packages of requirements-dev.txt",
    ]
    assert "--require-hashes --requirement requirements-setup.txt" in calls


def test_a_run_needs_no_package_of_the_tests(project):
    """`make repro` sets up what a run needs; `make test` adds the rest."""
    steps, calls = steps_of(project, ".venv/.ready")
    assert (len(steps), "requirements-dev.txt" in calls) == (3, False)
    set_up(project, *STAMPS[:2])
    assert "requirements-dev.txt" not in make(project, "--dry-run", "repro").stdout
    assert "requirements-dev.txt" in make(project, "--dry-run", "test").stdout


@pytest.mark.parametrize("choice", ["cpu", "cuda"])
def test_the_torch_that_is_asked_for_is_installed(project, choice):
    printed = make(project, "--dry-run", ".venv/.ready", f"TORCH={choice}").stdout
    assert f"tools/install.py .venv requirements.txt --torch {choice}" in printed


def test_a_ready_environment_is_not_set_up_again(project):
    set_up(project, *STAMPS)
    done = make(project, "--dry-run", "test")
    assert done.stdout.splitlines() == [
        'tools/check-place "test" "" ""',
        "python -m pytest -n logical --dist worksteal",
    ]


def test_part_of_the_tests_runs_by_their_folders(project):
    set_up(project, *STAMPS)
    printed = make(project, "--dry-run", "test", "TESTS=tests/unit/train tests/pipeline").stdout
    assert printed.splitlines()[-1].endswith("worksteal tests/unit/train tests/pipeline")


def test_stages_and_tests_write_bytecode(project):
    (project / "bytecode.mk").write_text(
        "include Makefile\n.PHONY: show\nshow:\n\t@echo [$$PYTHONDONTWRITEBYTECODE]\n"
    )
    shown = run(project, "make", "-f", "bytecode.mk", "show", PYTHONDONTWRITEBYTECODE="1")
    assert shown.stdout == "[]\n"


def test_a_peer_is_set_up_beside_our_environment_once(project):
    set_up(project, *STAMPS)
    (project / "benchmarks").mkdir()
    for name in ("transformers4rec", "rectools", "recbole"):
        shutil.copy(ROOT / "benchmarks" / f"{name}.txt", project / "benchmarks")
    ready = project / "build" / "peers" / "rectools" / ".ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    printed = make(project, "--dry-run", "bench-peers").stdout
    made = set(re.findall(r"uv venv .* (\S+)\n", printed))
    assert made == {"build/peers/transformers4rec"}
    installed = re.findall(r"tools/install.py (\S+) (\S+)", printed)
    assert installed == [("build/peers/transformers4rec", "benchmarks/transformers4rec.txt")]
    assert printed.splitlines()[-1] == "python -W ignore benchmarks/peers.py"
    printed = make(project, "--dry-run", "bench-peers", "SIZE=shop").stdout
    assert "benchmarks/peer_accuracy.py --datasets shop --epochs 1" in printed.splitlines()[-1]
    refused = make(project, "--dry-run", "bench-peers", "SIZE=large")
    assert "SIZE=large: expected shop, or nothing" in refused.stderr
    printed = make(project, "--dry-run", "bench-accuracy", "OPTIONS=--epochs 3").stdout
    assert "tools/install.py build/peers/recbole benchmarks/recbole.txt" in printed
    assert printed.splitlines()[-1] == "python -W ignore benchmarks/peer_accuracy.py --epochs 3"


def environment(folder, owner):
    """What is there of an environment that was set up in the folder `owner`."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "pip").write_text(f"#!{owner}/.venv/bin/python3.11\n")
    interpreter(programs / "pytest", "", then="echo tested")
    set_up(folder, *STAMPS)


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


def test_another_torch_than_that_of_the_environment_is_refused(project):
    environment(project, project)
    packages = project / ".venv" / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    error = error_of(make(project, "test", "TORCH=cuda"))
    assert "built for cpu, not for cuda; run make clean" in error
    assert "TORCH is gpu; expected cpu or cuda" in error_of(make(project, "test", "TORCH=gpu"))
    assert make(project, ".place", "TORCH=cpu").returncode == 0


def test_an_environment_in_its_place_is_used(project):
    environment(project, project)
    same = make(project, "--dry-run", "test", f"PYTHON={sys.executable}")
    assert (same.returncode, same.stderr) == (0, "")
    assert make(project, ".place", f"PYTHON={sys.executable}").returncode == 0


def test_the_interpreter_of_an_environment_is_found():
    """`make` inside .venv must not build .venv from itself."""
    command = [str(ROOT / "tools" / "find-python"), sys.executable]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found) == Path(sys._base_executable)
    assert Path(found) != Path(sys.executable) or sys.prefix == sys.base_prefix


def test_the_newest_python_on_the_path_is_taken(tmp_path):
    for version in ("3.11.7", "3.13.0", "3.12.1"):
        name = "python" + version.rpartition(".")[0]
        interpreter(tmp_path / name, version, then=f"echo {name}")
    found = run(tmp_path, ROOT / "tools" / "find-python", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert found.stdout == "python3.13\n"


@pytest.mark.long
def test_equal_runs_have_their_averages_in_the_list_of_experiments(tmp_path):
    """Also where nothing differs, which leaves no column that --only-changed would show."""
    recipe = re.search(r"^experiments:.*\n\t@(.+\\\n.+)$", MAKEFILE, re.MULTILINE)
    (tmp_path / "aod.json").write_text(
        '{"aod": {"ndcg_at_20": 0.25, "ndcg_at_10": 0.2, "new_at_20": 1}}'
    )
    (tmp_path / "dvc.yaml").write_text("metrics:\n- aod.json\n")
    identity = "git -c user.name=a -c user.email=a@b"
    commit = f"git init -q && dvc init -q && git add . && {identity} commit -qm a"
    done = run(tmp_path, "bash", "-c", f"{commit} && {recipe[1].replace('$$', '$')}")
    assert "aod.ndcg_at_20" in done.stdout, done.stderr
    assert "_at_10" not in done.stdout
    assert "new_at_20" not in done.stdout
