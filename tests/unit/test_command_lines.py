"""Command lines that a user may mistype: each ends well or with one message, and soon."""

import os
import random
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from support.command_lines import COLD, FILES, SHARES, command_line, ended, write_files
from support.results_folders import write_results
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder

ROOT = Path(__file__).parents[2]
DAYS = [f"2026-01-0{day}" for day in range(2, 9)]
N_LINES = 20
"""In each of the tests below."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with two models, results of several runs, and files of any content."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("params.yaml", "presets", "dvc.yaml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    write_files(folder)
    days = markov_days(3, 20, 9)
    for name, features in (("models", False), ("features", True)):
        windows = write_window_folder(folder / f"{name}-windows", days, features=features)
        sections = {"model": {"features": ["category", "price"] if features else []}}
        train_study(windows, folder / f"{name}-run", sections)
        (folder / f"{name}-run/models").rename(folder / name)
    (folder / "models-windows").rename(folder / "data")
    shutil.copytree(folder / "models", folder / "torn-model")
    weights = folder / "torn-model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    rng = random.Random(1)
    for name in ("a", "b", "c", "one", "two", "torn"):
        ranks = {day: [rng.randint(1, 30) for _ in range(20)] for day in DAYS}
        write_results(folder / name, ranks if name != "one" else dict([*ranks.items()][:1]))
    write_results(folder / "short", {DAYS[0]: [1, 2]})
    (folder / "torn/ranks" / f"{DAYS[1]}.parquet").write_bytes(b"PAR1")
    for words in ("init -q", "add params.yaml", "-c user.name=n -c user.email=n commit -qm all"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setenv("DVC_ROOT", str(made))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made}/mlflow.db")
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("seed", range(25))
def test_any_command_line_ends_well_or_with_one_message(seed):
    rng = random.Random(seed)
    lines = [command_line(rng) for _ in range(N_LINES)]
    for line in lines:
        assert (end := ended(line)).is_clean, f"{line}\n{end.err}"


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("model", ["models", "features"])
def test_any_file_of_events_is_answered_or_refused_with_one_message(model):
    past = [(), ("--past", "good.csv"), ("--past", "header.csv")]
    for words in product(FILES, past, COLD):
        line = ["recommend", "--models", model, "--events", words[0], *words[1]]
        line += ["--cold-start", words[2]]
        assert (end := ended(line)).is_clean, f"{line}\n{end.err}"


@pytest.mark.slow
@pytest.mark.parametrize("verb", SHARES)
@pytest.mark.parametrize("seed", range(5))
def test_so_does_a_process(folder, verb, seed):
    rng = random.Random(seed)
    line = next(words for words in iter(lambda: command_line(rng), None) if words[:1] == [verb])
    line = [word[:1000] for word in line]
    command = [sys.executable, "-m", "dayahead", *line]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
    )
    assert b"Traceback" not in done.stderr, line
    assert done.returncode in (0, 1, 2), line
    assert (done.returncode == 0) == (b"rror: " not in done.stderr and b"Usage" not in done.stderr)
