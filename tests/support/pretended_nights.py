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
from dayahead.nightly.pipeline import Pipeline, RefusedDataError
from support.results_folders import window_ranks, write_lists, write_results
from support.tiny_settings import EVALUATION, NIGHTLY, SECTIONS
from support.window_folders import day, write_window_folder

N_SESSIONS = 40
GUARDS = {"metric": "ndcg_at_20", "max_new_items": 0.5, "smoke_sessions": 3, "horizon": 6}


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
    1 + Poisson(level). Its seed makes no other difference than that of chance. Its lists show half
    of the items, or as much as the level ("coverage", epochs, window) says. No session has a target
    in the windows of the level "no target".
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

    def _fitted(self, changes):
        """What a model of the project is made with, after these changes: epochs and seed."""
        training = read_yaml(self.root / "params.yaml")["training"] | changes.get("training", {})
        return training["epochs"], training["seed"]

    def _write(self, results, fitted):
        windows = [day(number) for number in range(1, len(self.days))]
        windows = [window for window in windows if window not in self.levels.get("no target", ())]
        write_results(results, {window: self.ranks(window, fitted) for window in windows})
        epochs, _ = fitted
        coverage = {w: self.levels.get(("coverage", epochs, w), 0.5) for w in windows}
        write_lists(results, {w: {"coverage_at_20": share} for w, share in coverage.items()})

    def train(self):
        fitted = self._fitted({})
        self._write(self.root / "results", fitted)
        models, newest = self.root / "models", day(len(self.days) - 1)
        shutil.rmtree(models, ignore_errors=True)  # as save_model does
        write_json(models / "config.json", {"window": newest, "fitted": fitted})
        write_text(models / "vocabulary/items", f"{len(self.days)} days")

    def challenge(self, name, changes):
        results = self.root / ".dayahead/nightly" / name / "results"
        self._write(results, self._fitted(changes))
        return results

    keep_challenges = Pipeline.keep_challenges


@dataclass(frozen=True)
class PretendedModel:
    """A published folder: its ranks are those of its settings, of the window after its own."""

    folder: Path
    pipeline: PretendedPipeline
    faults: int = 0
    tick = 0

    def ranks(self, window):
        fitted = json.loads((self.folder / "config.json").read_text())["fitted"]
        return window_ranks(self.pipeline.ranks(window.name, fitted))

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
        return PretendedModel(folder, pipeline, faults)

    return Night(root, pipeline, open_model, record=record)


def published_tree(root):
    """Content of nights/ and published/ without clock times, and what the links name."""
    found = {}
    for path in sorted([*(root / "nights").rglob("*"), *(root / "published").rglob("*")]):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif name == "nights/nightly.html":
            found[name] = re.sub(r"<time datetime.*?</time>", "", path.read_text())
        elif name == "nights/times.json":
            found[name] = len(json.loads(path.read_text()))
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


def without_charts(patch):
    """Draw none on pages: a third of the time of a pretended night."""
    patch.setattr("dayahead.nightly.page.curves", lambda *_, **__: "")


@cache
def _after_nights(n_days):
    kept = TemporaryDirectory(prefix="nights-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", kept.name)
        without_charts(patch)
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
