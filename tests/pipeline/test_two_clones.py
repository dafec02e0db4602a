"""Two people share a remote: the second clone repeats nothing, and fits only what is new."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dayahead.core.cache import Cache
from dayahead.dataset.schema import load_dataset
from dayahead.dataset.source import SyntheticConfig
from dayahead.download.synthetic import generate
from support.project_copy import ROOT, copy_project
from support.window_folders import bytes_in

pytestmark = pytest.mark.slow
N_DAYS = 5
"""Of the first log; its last day is open."""
SETTINGS = {
    "dataset": "shop",
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 1},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
SHOP = {"urls": ["${oc.env:SHOP}/*.parquet"], "format": "parquet"}


def write_log(folder: Path) -> list[Path]:
    """A file of clicks for each of six days."""
    synthetic = load_dataset("synthetic", ROOT / "datasets").source.synthetic
    small = {**vars(synthetic), "days": N_DAYS + 1, "sessions_per_day": 300, "n_items": 300}
    log = generate(SyntheticConfig(**small))
    days = pc.strftime(log["event_time"], "%Y-%m-%d")
    paths = []
    for day in sorted(set(days.to_pylist())):
        paths.append(folder / f"{day}.parquet")
        pq.write_table(log.filter(pc.equal(days, day)), paths[-1])
    return paths


class Clone:
    """A clone of the project on a machine of its own, as far as caches go."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": "src",
            "SHOP": str(logs),
            "DVC_SITE_CACHE_DIR": f"{folder}-site",
            "GIT_CONFIG_PARAMETERS": "'user.name=n' 'user.email=n'",
            "MLFLOW_TRACKING_URI": "",
        }

    def run(self, command: str) -> str:
        """Run a command that succeeds; return its output."""
        done = subprocess.run(
            command.split(),
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def outputs(self) -> dict[str, bytes]:
        """All outputs but clock times."""
        files = bytes_in(self.folder / "models") | bytes_in(self.folder / "results")
        return {name: found for name, found in files.items() if name != "timing.csv"}

    def n_cached(self, kind: str) -> int:
        return len(Cache(self.folder / ".dayahead" / kind).keys())


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
    """The first clone, which has run and pushed; the second, just cloned; the file of a new day."""
    folder = tmp_path_factory.mktemp("clones")
    logs = folder / "logs"
    logs.mkdir()
    *_, new = write_log(logs)
    shutil.move(new, folder / new.name)
    first, second = Clone(folder / "first", logs), Clone(folder / "second", logs)
    first.folder.mkdir()
    copy_project(first.folder, SETTINGS)
    shutil.copy(ROOT / ".dvcignore", first.folder)  # without compiled files in its dependencies
    text = (ROOT / "datasets" / "synthetic.yaml").read_text()
    source = "source:\n  urls: ['${oc.env:SHOP}/*.parquet']\n  format: parquet\n"
    text = re.sub(r"^source:\n(?: .*\n)+", lambda _: source, text, flags=re.M)
    (first.folder / "datasets" / "shop.yaml").write_text(text)
    first.run("git init -q")
    first.run(f"dvc remote add -q -d store {folder / 'store'}")
    first.run("dvc repro -q")
    first.run("git add .")
    first.run("git commit -qm all")
    first.run("dvc push -q --run-cache")
    assert "all" in first.run("python -m dayahead cache push")
    first.run(f"git clone -q {first.folder} {second.folder}")
    return first, second, folder / new.name


def test_the_second_clone_trains_nothing_and_then_the_new_window_alone(clones):
    first, second, new = clones
    second.run("dvc pull -q --run-cache")
    assert second.outputs() == first.outputs()
    pulled = second.run("python -m dayahead cache pull")
    assert re.search(r"^fits +3 ", pulled, re.M), pulled
    again = second.run("python -m dayahead cache pull")
    assert re.search(r"^all +0 +0 +0\.0 +\d+$", again, re.M), again
    output = second.run("dvc repro")
    assert "Running stage" not in output
    shutil.copy(new, second.environment["SHOP"])
    before = second.n_cached("evaluations")
    output = second.run("dvc repro -f download") + second.run("dvc repro")
    assert output.count("(cached)") == N_DAYS, output
    assert "preprocess: 4 closed windows reused" in output
    assert "fit 2026-01-04: from the cache" in output
    evaluated = re.findall(r"evaluated (\S+):.*?(, from the cache)?$", output, re.M)
    new_windows = [window for window, cached in evaluated if not cached]
    assert new_windows == ["2026-01-05"]
    assert second.n_cached("evaluations") == before + 3
    first.run("dvc repro -q -f download")
    first.run("dvc repro -q")
    assert second.outputs() == first.outputs()
    sent = second.run("python -m dayahead cache push")
    assert re.search(r"^evaluations +3 +\d+ +[\d.]+ +9$", sent, re.M), sent
