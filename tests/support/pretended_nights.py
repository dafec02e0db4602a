"""Nights of a project whose pipeline is pretended: its files are real, its models are not."""

import json
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
import pytest

from dayahead.config.loading import read_yaml
from dayahead.core.files import write_json, write_text
from dayahead.nightly.guards import Check
from dayahead.nightly.night import Night
from dayahead.nightly.pipeline import RefusedDataError
from support.results_folders import write_results
from support.tiny_settings import EVALUATION, NIGHTLY, SECTIONS
from support.window_folders import day, write_window_folder

N_SESSIONS = 40
GUARDS = {"metric": "ndcg_at_20", "max_new_items": 0.5, "smoke_sessions": 3}


def ordinary_day(number, n_sessions=N_SESSIONS, shift=0):
    """Sessions over the same 30 items every day."""
    draw = np.random.default_rng(number)
    return [[int(i) + shift for i in draw.integers(0, 30, 3)] for _ in range(n_sessions)]


def write_params(root, nightly=None, **sections):
    values = {name: {**given, **sections.get(name, {})} for name, given in SECTIONS.items()}
    values["evaluation"] = EVALUATION | {"cutoffs": [10, 20]}
    values["nightly"] = NIGHTLY | GUARDS | (nightly or {})
    write_json(root / "params.yaml", {"dataset": "tiny", **values})


@dataclass(frozen=True)
class PretendedPipeline:
    """Delivers days from a file, and makes up the ranks of models by their settings.

    A model is as good as `levels` says of its training.epochs: the rank of a target is
    1 + Poisson(level). Its seed makes no other difference than that of chance. No session has a
    target in the windows of the level "no target".
    """

    root: Path
    levels: dict

    def deliver(self, days):
        write_text(self.root / "days.json", json.dumps(days))

    def deliver_days(self, n_days, odd=None):
        """Deliver so many ordinary days; `odd` has the arguments of those that are none."""
        self.deliver(
            [ordinary_day(number, **(odd or {}).get(number, {})) for number in range(n_days)]
        )

    @property
    def days(self):
        return json.loads((self.root / "days.json").read_text())

    def update_data(self):
        if "refuse" in self.days:
            raise RefusedDataError("datasets/tiny.yaml: too many defects in the log")
        write_window_folder(self.root / "data/windows", self.days)

    def ranks(self, window, fitted):
        epochs, seed = fitted
        level = self.levels.get((epochs, window), self.levels.get(epochs, 3))
        draw = np.random.default_rng([crc32(window.encode()), epochs, seed])
        return (1 + draw.poisson(level, N_SESSIONS)).tolist()

    def train(self):
        training = read_yaml(self.root / "params.yaml")["training"]
        fitted = training["epochs"], training["seed"]
        windows = [day(number) for number in range(1, len(self.days))]
        windows = [window for window in windows if window not in self.levels.get("no target", ())]
        write_results(self.root / "results", {w: self.ranks(w, fitted) for w in windows})
        models, newest = self.root / "models", day(len(self.days) - 1)
        shutil.rmtree(models, ignore_errors=True)  # as save_model does
        write_json(models / "config.json", {"window": newest, "fitted": fitted})
        write_text(models / "vocabulary/items", f"{len(self.days)} days")


@dataclass(frozen=True)
class PretendedModel:
    """The new model, which leaves so many requests without an answer."""

    faults: int = 0

    def smoke_check(self, window, n_sessions):
        return Check("smoke_sessions", self.faults == 0, f"{self.faults} faults")

    def coverage(self, window):
        return 1.0


def pretended_night(root, levels=None, faults=0, record=None):
    """The nights of a project in `root`, which is made one; DVC_ROOT must name it."""
    root.mkdir(exist_ok=True)
    if not (root / "params.yaml").exists():
        write_params(root)
    pipeline = PretendedPipeline(root, levels or {})

    def open_model(folder, windows, params):
        return PretendedModel(faults)

    return Night(root, pipeline, open_model, record=record)


def published_tree(root):
    """Content of nights/ and published/ without clock times, and what the links name."""
    found = {}
    for path in sorted([*(root / "nights").rglob("*"), *(root / "published").rglob("*")]):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif name in ("nights/history.jsonl", "nights/finished.json"):
            found[name] = re.sub(r'"time": "[^"]*",\s*', "", path.read_text())
        elif path.is_file() and "/current/" not in name and "/previous/" not in name:
            found[name] = path.read_bytes()
    return found


def run_nights(root, n_days, first=2, **more):
    """Feed day after day; return the night and the outcomes."""
    night = pretended_night(root, **more)
    outcomes = []
    for number in range(first, n_days + 1):
        night.pipeline.deliver_days(number)
        outcomes.append(night.run())
    return night, outcomes


@cache
def _after_nights(n_days):
    kept = TemporaryDirectory(prefix="nights-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", kept.name)
        run_nights(Path(kept.name), n_days)
    return kept


def after_nights(root, n_days):
    """The night of a project in which so many ordinary days were fed; they are run once."""
    shutil.copytree(_after_nights(n_days).name, root, symlinks=True, dirs_exist_ok=True)
    return pretended_night(root)


def linked(root):
    """Windows of the current and the previous model."""
    links = (root / "published/current", root / "published/previous")
    return [link.readlink().name[:10] if link.is_symlink() else None for link in links]
