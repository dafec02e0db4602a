"""Threads, clusters of our own and of others, and the stage on workers that are processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dask
import psutil
import pytest
from distributed import LocalCluster

from dayahead.core.errors import ConfigError, DataError
from dayahead.preprocess import stage
from dayahead.preprocess.workers import Phases, workers
from support.builders import (
    RANDOM_LOG_FEATURES,
    TWO_DAYS,
    dataset_config,
    machine_config,
    random_log,
)
from support.waiting import wait_until
from support.window_folders import bytes_in


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.workers._CONNECT_SECONDS", 0.2)
    with (
        dask.config.set(scheduler_address="tcp://127.0.0.1:1"),
        pytest.raises(ConfigError, match=r"DASK_SCHEDULER_ADDRESS.*tcp://127\.0\.0\.1:1"),
    ):
        workers(machine_config(), tmp_path).__enter__()


@pytest.mark.parametrize("limit", ["much", "", "-1GiB", "0", "1kB", "1e400", "nan", "1e30GB"])
def test_a_memory_limit_must_be_a_size(tmp_path, limit):
    with pytest.raises(ConfigError, match=rf"machine\.memory_limit.*'{limit}'"):
        workers(machine_config(memory_limit=limit), tmp_path).__enter__()


def test_a_scheduler_by_address_is_used_and_left_running(tmp_path):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(**options, dashboard_address=":0") as cluster,
        dask.config.set(scheduler_address=cluster.scheduler_address),
    ):
        for _ in range(2):
            with workers(machine_config(), tmp_path, is_small=True) as started:
                assert type(started.executor) is not ThreadPoolExecutor
                assert started.executor.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow
def test_the_environment_names_the_scheduler():
    """Dask reads its variable as it is imported, so the stage needs no more than that."""
    script = (
        "from pathlib import Path; from support.builders import machine_config\n"
        "from dayahead.preprocess.workers import workers; from distributed import get_worker\n"
        "with workers(machine_config(), Path(), is_small=True) as started:\n"
        "    where = started.executor.submit(lambda: get_worker().scheduler.address)\n"
        "    print(where.result())"
    )
    tests = str(Path(__file__).parents[2])
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-c", script]
    options = {"n_workers": 1, "processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        address = cluster.scheduler_address
        environ = os.environ | {"PYTHONPATH": paths, "DASK_SCHEDULER_ADDRESS": address}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == address, done.stderr


def listening():
    """Addresses on which this process and its children listen."""
    here = psutil.Process()
    found = [c for p in (here, *here.children(recursive=True)) for c in p.net_connections()]
    return {connection.laddr for connection in found if connection.status == "LISTEN"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("n_workers", "is_small"), [(1, True), pytest.param("auto", False, marks=pytest.mark.slow)]
)
def test_a_cluster_of_our_own_is_local_and_stops_at_the_end(tmp_path, n_workers, is_small):
    before = listening()
    config = machine_config(workers=n_workers)
    with workers(config, tmp_path, is_small=is_small) as started:
        assert started.n_threads == psutil.cpu_count()
        worker = started.executor.submit(os.getpid).result()
        assert worker != os.getpid()
        assert all(peak > 0 for peak in started.peaks())
        assert {address.ip for address in listening() - before} == {"127.0.0.1"}
    assert not psutil.pid_exists(worker)


def test_small_work_runs_in_threads_of_this_process(tmp_path):
    before = listening()
    with workers(machine_config(), tmp_path, is_small=True) as started:
        assert started.n_threads == psutil.cpu_count()
        assert started.executor.submit(os.getpid).result() == os.getpid()
        assert listening() <= before


def test_the_first_error_is_raised_and_tasks_that_wait_are_cancelled(tmp_path):
    started_tasks, is_raised = [], threading.Event()

    def task(number):
        started_tasks.append(number)
        if number == 0:
            raise DataError("task 0")
        is_raised.wait(60)

    with workers(machine_config(), tmp_path, is_small=True) as started:
        with pytest.raises(DataError, match="task 0"):
            Phases(started, tmp_path).run("many", task, range(500))
        is_raised.set()
    assert len(started_tasks) <= started.n_threads + 1


@pytest.mark.slow
def test_a_worker_that_is_killed_as_it_starts_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.workers.START_SECONDS", 20)
    monkeypatch.setattr("dayahead.preprocess.workers.END_SECONDS", 1)
    before = set(psutil.Process().children())

    def kill_one():
        while True:
            for child in set(psutil.Process().children()) - before:
                if "spawn_main" in " ".join(child.cmdline()):
                    return child.kill()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with workers(machine_config(workers=2), tmp_path) as started:
        killer.join()
        assert len(list(started.peaks())) == 2
        assert started.executor.submit(sum, [1, 2]).result() == 3


def test_a_cluster_without_any_worker_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.workers.START_SECONDS", 0.1)
    monkeypatch.setattr(LocalCluster, "scale", lambda *_: None)
    with pytest.raises(DataError, match=r"no Dask worker started within.*machine\.workers"):
        workers(machine_config(workers=2), tmp_path).__enter__()


DATASET = dataset_config(
    columns={"user_id": "user_id"},
    features=RANDOM_LOG_FEATURES,
    max_length=5,
    repeats={"rule": "drop_consecutive", "scope": "user"},
    past_max_length=3,
)

_SECONDS = 60


@contextmanager
def cluster(folder, n_workers):
    """A scheduler and workers as processes: its address, and all processes, the scheduler first."""
    note = folder / "scheduler.json"
    given = ("--scheduler-file", str(note))
    ends = ("--death-timeout", str(_SECONDS))
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
        wait_until(lambda: note.is_file() and note.stat().st_size > 0, _SECONDS)
        yield json.loads(note.read_text())["address"], processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


LOG = random_log(seed=21, days=6, sessions_per_day=40)


@pytest.fixture
def expected(run, monkeypatch):
    found = bytes_in(run(LOG, DATASET, parts=6).folder)
    monkeypatch.setattr(stage, "MAX_EVENTS_PER_TASK", 150)  # many tasks
    return found


@pytest.mark.slow
def test_a_scheduler_and_two_workers_write_the_same_bytes(tmp_path, run, expected):
    with cluster(tmp_path, n_workers=2) as (address, _):
        assert bytes_in(run(LOG, DATASET, parts=6, scheduler=address).folder) == expected


def kill_in_phase_users(folder, process):
    """Return a thread that kills a process once two tasks of the phase `users` are done."""

    def kill():
        scratch = "*/.windows.building/scratch/users-*.events"
        wait_until(lambda: len(list(folder.glob(scratch))) > 1, _SECONDS)
        process.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


@pytest.mark.slow
def test_the_stage_survives_the_kill_of_a_worker(tmp_path, run, expected):
    with cluster(tmp_path, n_workers=2) as (address, (_, worker, _)):
        killer = kill_in_phase_users(tmp_path, worker)
        found = run(LOG, DATASET, parts=6, scheduler=address)
        killer.join()
        assert worker.wait() == -signal.SIGKILL
    assert bytes_in(found.folder) == expected


@pytest.mark.slow
def test_the_kill_of_the_scheduler_is_one_clear_error(tmp_path, run, expected):
    with cluster(tmp_path, n_workers=2) as (address, (scheduler, *_)):
        killer = kill_in_phase_users(tmp_path, scheduler)
        with pytest.raises(DataError, match="Dask scheduler was lost; run again"):
            run(LOG, DATASET, parts=6, scheduler=address)
        killer.join()
    assert list(tmp_path.glob("*/windows")) == [tmp_path / "0/windows"]  # those of `expected`


def test_a_scheduler_without_workers_is_an_error_that_names_it(tmp_path, run, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.workers.START_SECONDS", 0.5)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        pytest.raises(ConfigError, match=f"{cluster.scheduler_address} has no worker"),
    ):
        run(TWO_DAYS, dataset_config(), scheduler=cluster.scheduler_address)
    assert not list(tmp_path.glob("*/windows"))
