"""A toy pipeline whose stages run in processes of their own, and the runs in its store."""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dayahead.config.params import load_params
from dayahead.core.errors import SourceError
from dayahead.tracking import runs
from dayahead.tracking.outbox import Outbox
from dayahead.tracking.publication import Publication
from dayahead.tracking.runs import stage_run
from dayahead.tracking.store import Store
from dayahead.tracking.sync import send

DVC_YAML = """
stages:
  download:
    cmd: python stage.py download
    params: [dataset]
    deps:
    - sources/${dataset}.csv
    outs: [data/raw]
  train:
    cmd: python stage.py train
    params: [model, training]
    deps: [data/raw, code]
    outs:
    - models: {persist: false}
    metrics:
    - results/windows.csv
  aggregate:
    cmd: python stage.py aggregate
    deps: [results/windows.csv]
    metrics:
    - results/aod.json
"""

# Processes that start with MLflow imported, but share no connection with the tests. The fork server
# does not know the folder of this module, and ignores what it cannot import.
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(
    [
        *("dayahead.tracking.runs", "dayahead.tracking.sync", "dayahead.tracking.uploader"),
        "mlflow.store.tracking.sqlalchemy_store",
    ]
)


@contextmanager
def sending_thread(outbox: Outbox, kinds: Sequence[str]) -> Iterator[None]:
    """What `background_sender` does, without a process that loads MLflow every time."""
    over = threading.Event()
    thread = threading.Thread(target=send, args=(outbox, kinds, over))
    with outbox.running():
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def window(step: int) -> dict:
    """The record of one evaluated window."""
    return {"step": step, "timestamp_ms": 10**12 + step, "metrics": {"ndcg_at_20": step / 8}}


NOWHERE = "http://127.0.0.1:9"
"""A server that refuses at once."""
CURVE = [(0, 0), (1, 0.125), (2, 0.25), (3, 0.375)]


def start_stage(stage: str, fate: str = "end", **environment: str):
    """Start a stage in a process of its own and the current folder, as DVC does."""
    process = CLEAN.Process(
        target=_stage, args=(stage, fate, {**os.environ, **environment}, Path.cwd())
    )
    process.start()
    return process


def run_stage(stage: str, fate: str = "end", **environment: str) -> tuple[int, str]:
    """Run a stage to its end; return its exit status and output."""
    process = start_stage(stage, fate, **environment)
    process.join(100)
    return process.exitcode, _output(Path.cwd(), process.pid).read_text()


def _output(folder: Path, pid: int) -> Path:
    return folder / f"output-{pid}.txt"


def _stage(stage: str, fate: str, environment: dict[str, str], folder: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stderr = _output(folder, os.getpid()).open("w", buffering=1)
    runs.background_sender = sending_thread
    with stage_run(stage, load_params()) as run:
        for step in range(3):
            run.log_window(window(step))
        _meet(fate)
        run.log_window(window(3))
        run.log_metrics({"aod": 0.25})


def _meet(fate: str) -> None:
    if fate == "raise":
        raise ValueError("on purpose")
    if fate == "refuse":
        raise SourceError("tcp://me:secret@host is missing\nsecond line")
    if fate == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)


def publication(**fields) -> Publication:
    """A decision of a night about the model `shop`."""
    usual = {
        "number": 1,
        "key": "1",
        "model": "shop",
        "window": "2026-01-05",
        "metrics": {"champion_ndcg_at_20": 0.25},
        "published": "",
        "folder": None,
        "champion": "a",
        "previous": "",
        "withdrawn": {},
    }
    return Publication(**(usual | fields))


def plain_package(target: Path, folder: Path, *_: Path) -> Path:
    """A package without MLflow's own files, which take seconds to write."""
    return shutil.copytree(folder, target)


def runs_of(store: Store) -> dict[str, list]:
    """The runs in a store by their stage (`pipeline` for parents), the oldest first."""
    found: dict[str, list] = {}
    experiment = store.experiment_id("dayahead")
    for run in reversed(store.client.search_runs([experiment])):
        found.setdefault(run.data.tags["dvc.stage"], []).append(run)
    return found


def points_of(store: Store, run, name: str = "ndcg_at_20") -> list[tuple[int, float]]:
    """A metric's points as (step, value), duplicates included."""
    history = store.client.get_metric_history(run.info.run_id, name)
    return sorted((point.step, point.value) for point in history)


def has_points(store: Store) -> bool:
    """Whether a point of a run of `train` has arrived."""
    return any(points_of(store, train) for train in runs_of(store).get("train", []))
