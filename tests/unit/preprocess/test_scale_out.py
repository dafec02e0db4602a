"""The stage against a scheduler and workers that are processes of their own, as on a cluster."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from dayahead.core.errors import ConfigError
from dayahead.preprocess import build
from dayahead.preprocess.stage import preprocess
from support.builders import (
    RANDOM_LOG_FEATURES,
    dataset_config,
    machine_config,
    preprocess_config,
    random_log,
    window_config,
    write_log,
)
from support.window_folders import bytes_in

DATASET = dataset_config(
    columns={"user_id": "user_id"},
    features=RANDOM_LOG_FEATURES,
    max_length=5,
    repeats={"rule": "drop_consecutive", "scope": "user"},
    past_max_length=3,
)

SECONDS = 60


def wait_for(condition):
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@contextmanager
def cluster(folder, n_workers):
    """A scheduler and workers; gives its address and the workers."""
    note = folder / "scheduler.json"
    given = ("--scheduler-file", str(note))
    ends = ("--death-timeout", str(SECONDS))
    worker = ("worker", *given, "--nthreads", "1", "--no-nanny", "--no-dashboard", *ends)
    commands = [("scheduler", *given, "--no-dashboard", "--port", "0"), *[worker] * n_workers]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    try:
        wait_for(lambda: note.is_file() and note.stat().st_size)
        yield json.loads(note.read_text())["address"], processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def raw(tmp_path):
    write_log(tmp_path / "raw", random_log(seed=21, days=6, sessions_per_day=40), parts=6,
              log_end="2026-02-01")  # fmt: skip
    return tmp_path / "raw"


@pytest.fixture
def expected(tmp_path, raw, dask_address, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "here"))
    machine = machine_config(scheduler=dask_address)
    preprocess(raw, tmp_path / "expected", DATASET, window_config(), preprocess_config(), machine)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "there"))
    monkeypatch.setattr(build, "EVENTS_AT_ONCE", 150)  # many tasks
    return bytes_in(tmp_path / "expected")


@pytest.mark.slow
def test_a_scheduler_and_two_workers_write_the_same_bytes(tmp_path, raw, expected):
    with cluster(tmp_path, n_workers=2) as (address, _):
        machine = machine_config(scheduler=address)
        preprocess(
            raw, tmp_path / "windows", DATASET, window_config(), preprocess_config(), machine
        )
    assert bytes_in(tmp_path / "windows") == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_is_survived(tmp_path, raw, expected):
    scratch = tmp_path / ".windows.building" / "scratch"
    with cluster(tmp_path, n_workers=2) as (address, workers):

        def kill():
            wait_for(lambda: len(list(scratch.glob("users-*.events"))) > 1)
            workers[0].send_signal(signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        machine = machine_config(scheduler=address)
        preprocess(
            raw, tmp_path / "windows", DATASET, window_config(), preprocess_config(), machine
        )
        killer.join()
        assert workers[0].wait() == -signal.SIGKILL
    assert bytes_in(tmp_path / "windows") == expected


def test_a_scheduler_without_workers_is_named(tmp_path, raw, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.dask_cluster._CONNECT_SECONDS", 0.5)
    with cluster(tmp_path, n_workers=0) as (address, _):
        machine = machine_config(scheduler=address)
        with pytest.raises(ConfigError, match=f"{address} has no worker"):
            preprocess(
                raw, tmp_path / "windows", DATASET, window_config(), preprocess_config(), machine
            )
    assert not (tmp_path / "windows").exists()
