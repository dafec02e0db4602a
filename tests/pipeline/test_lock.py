"""The lock is complete: every package in one file, with hashes, for each kind of machine."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.tools import TOOLS, load_tool

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("requirements*.txt"))
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?P<rest>.*\n(?:    .*\n)*)", re.M)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
UV = Path(sys.executable).parent / "uv"


def pins(kind):
    """Versions by name in requirements`kind`.txt."""
    text = (ROOT / f"requirements{kind}.txt").read_text(encoding="utf-8")
    return {pin["name"]: pin["version"] for pin in PIN.finditer(text)}


def names(requirements):
    return {re.match(r"[\w.-]+", each)[0].lower().replace(".", "-") for each in requirements}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_package_has_hashes_and_no_index_is_named(file):
    text = file.read_text(encoding="utf-8")
    assert [pin["name"] for pin in PIN.finditer(text) if "--hash=sha256:" not in pin["rest"]] == []
    assert PIN.sub("", text).count("\n") == len(re.findall("^# ", text, re.M))
    assert "://" not in text


def test_run_cuda_and_development_share_what_tests_need_of_cuda():
    run, cuda, dev = pins(""), pins("-cuda"), pins("-dev")
    assert not {*run} & {*dev} | {*run} & {*cuda}
    assert {*cuda} & {*dev} == {"triton"}
    assert cuda["triton"] == dev["triton"]
    groups = PROJECT["dependency-groups"]
    assert {*run} >= names(PROJECT["project"]["dependencies"])
    assert {*dev} >= names(groups["dev"])
    assert {"triton", "nvidia-cudnn-cu13"} <= {*cuda}
    assert not [name for name in run if name.startswith(("nvidia-", "cuda-"))]


OVERRIDDEN = {
    "merlin-core 23.8.0 has requirement pandas<1.6.0dev0,>=1.2.0": "pandas",
    "merlin-core 23.8.0 requires dask-cuda": "dask-cuda",
    "merlin-core 23.8.0 requires pynvml": "pynvml",
    "nvtabular 23.8.0 requires merlin-dataloader": "merlin-dataloader",
}
"""What `pip check` complains of, and what the lock overrides for it."""


def test_only_merlins_bounds_that_the_lock_overrides_are_not_met():
    command = [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {line.split(", ")[0] if " requires " in line else line.partition(", but")[0]
             for line in done.stdout.splitlines()}  # fmt: skip
    assert found == {*OVERRIDDEN}
    assert names(PROJECT["tool"]["uv"]["override-dependencies"]) == {*OVERRIDDEN.values()}


def test_the_pandas_that_overrides_merlins_is_that_of_the_project():
    (wanted,) = (each for each in PROJECT["project"]["dependencies"] if each.startswith("pandas="))
    assert wanted in PROJECT["tool"]["uv"]["override-dependencies"]


def test_packages_are_built_by_the_setuptools_that_is_installed():
    both = {*pins("")} & {*pins("-setup")}
    assert "setuptools" in both
    assert {name: pins("")[name] for name in both} == {name: pins("-setup")[name] for name in both}


def uv_compile(monkeypatch, *options):
    """What pyproject.toml needs on a kind of machine, as uv resolves it now."""
    if not UV.exists():
        pytest.skip("uv is not installed: set up .venv with `make`")
    monkeypatch.syspath_prepend(str(TOOLS))
    environment = load_tool("pip_settings").uv_environment(with_more=False)
    command = [UV, "pip", "compile", "pyproject.toml", "--quiet", "--python", sys.executable]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if re.search("Failed to fetch|Request failed", done.stderr):
        pytest.skip("the package index is not reached")
    assert done.returncode == 0, done.stderr
    return {pin["name"]: pin["version"] for pin in PIN.finditer(done.stdout)}


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_machine_needs_a_package_that_is_not_locked(monkeypatch, machine):
    files = [word for kind in ("", "-cuda", "-dev") for word in ("-c", f"requirements{kind}.txt")]
    platform = ("--python-platform", f"{machine}-manylinux_2_28", "--python-version", "3.11")
    needed = uv_compile(monkeypatch, *platform, "--group", "dev", *files)
    locked = pins("") | pins("-cuda") | pins("-dev")
    assert len(needed) > 200
    assert {name: version for name, version in needed.items() if locked.get(name) != version} == {}


@pytest.mark.slow
def test_compiling_again_changes_nothing(monkeypatch, tmp_path):
    uv_compile(monkeypatch)  # else there is no index to ask
    tool = load_tool("lock")
    for file in (ROOT / "pyproject.toml", *FILES):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    tool.main()
    assert {file.name: (tmp_path / file.name).read_bytes() for file in FILES} == {
        file.name: file.read_bytes() for file in FILES
    }
