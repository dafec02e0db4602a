"""A project of a small shop whose log grows by a file a day, and its clones."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.cache import Cache
from dayahead.dataset.schema import load_dataset
from dayahead.dataset.source import SyntheticConfig
from dayahead.download.shop import events_of
from support.commands import PROGRAMS
from support.outputs import outputs_in
from support.project_copy import ROOT, copy_project

SETTINGS = {
    "dataset": "shop",
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 1},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
SOURCE = "source:\n  urls: ['${oc.env:SHOP}/*.parquet']\n  format: parquet\n"


def write_log(folder: Path, n_days: int) -> list[Path]:
    """Write a file of clicks for each day."""
    synthetic = load_dataset("synthetic", ROOT / "datasets").source.synthetic
    small = {**vars(synthetic), "days": n_days, "sessions_per_day": 300, "n_items": 300}
    log = events_of(SyntheticConfig(**small))
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
            "PATH": PROGRAMS,
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
        return outputs_in(self.folder)

    def n_cached(self, kind: str) -> int:
        return len(Cache(self.folder / ".dayahead" / kind).keys())


def make_shop(clone: Clone, settings: Mapping[str, Any]) -> None:
    """Make a clone's folder a project, in Git, of the data set `shop`: the files of `logs`."""
    clone.folder.mkdir()
    copy_project(clone.folder, settings)
    shutil.copy(ROOT / ".dvcignore", clone.folder)  # without compiled files in its dependencies
    text = (ROOT / "datasets" / "synthetic.yaml").read_text()
    text = re.sub(r"^source:\n(?: .*\n)+", lambda _: SOURCE, text, flags=re.M)
    (clone.folder / "datasets" / "shop.yaml").write_text(text)
    clone.run("git init -q")
