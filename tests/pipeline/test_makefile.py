"""Make targets are listed; a failed set-up leaves no stamp; the lock is whole and of PyPI alone."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from support.commands import run

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
PROMISED = {
    *("dvc", "torch", "transformers", "nvtabular", "pyarrow", "dask-cuda", "mlflow", "pytest"),
}
"""What the pipeline is built on, by name in requirements.txt."""


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


def test_make_alone_lists_every_target(project):
    [phony] = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    listed = re.findall(r"^  make (\S+) +\S", make(project).stdout, re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())


def test_a_missing_python_is_an_error_of_one_line_and_leaves_nothing(project):
    done = make(project, "test", "PYTHON=nonesuch")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "make PYTHON=" in line
    assert not (project / ".venv").exists()


def test_a_failed_set_up_leaves_no_stamp(project):
    """Nor does the stamp of an older set-up survive."""
    (project / ".venv").mkdir()
    stamp = project / ".venv" / ".ready"
    stamp.touch()
    (project / "requirements.txt").write_text("changed\n")
    assert make(project, "test", "PYTHON=nonesuch").returncode != 0
    assert not stamp.exists()


def test_a_run_needs_no_package_of_the_tests(project):
    (project / ".venv").mkdir()
    (project / ".venv" / ".ready").touch()
    assert "requirements-dev.txt" not in make(project, "--dry-run", "repro").stdout
    assert "requirements-dev.txt" in make(project, "--dry-run", "test").stdout
    (project / ".venv" / ".dev-ready").touch()
    printed = make(project, "--dry-run", "test", "TESTS=tests/unit/train").stdout
    assert printed == "python -m pytest -n logical --dist worksteal tests/unit/train\n"


def test_stages_and_tests_write_bytecode(project):
    (project / "bytecode.mk").write_text(
        "include Makefile\n.PHONY: show\nshow:\n\t@echo [$$PYTHONDONTWRITEBYTECODE]\n"
    )
    shown = run(project, "make", "-f", "bytecode.mk", "show", PYTHONDONTWRITEBYTECODE="1")
    assert shown.stdout == "[]\n"


def test_requirements_are_those_of_the_lock_and_name_what_is_promised():
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    versions = {package["name"]: package.get("version") for package in lock["package"]}
    for file in ROOT.glob("requirements*.txt"):
        pins = dict(PIN.findall(file.read_text()))
        assert {name: versions[name] for name in pins} == pins
    assert set(dict(PIN.findall((ROOT / "requirements.txt").read_text()))) >= PROMISED


def test_the_lock_names_no_index_but_pypi():
    hosts = set(re.findall(r"https?://[^/\"]+", (ROOT / "uv.lock").read_text()))
    assert hosts == {"https://pypi.org", "https://files.pythonhosted.org"}


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
