"""A tracking server that is down, slow or asleep: the run goes on, and no record is lost."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest
from mlflow import MlflowClient

from faults.harness import N_WINDOWS, TRAIN, assert_error, wait
from support.mlflow_servers import server

pytestmark = pytest.mark.faults
TIMEOUT = 75
"""Seconds that a stage may wait for a server at its end: a minute of uploads, and one request."""


@contextmanager
def slowed(process, asleep, awake):
    """Let a server sleep most of the time: it takes every request, and answers late."""
    done = threading.Event()

    def doze():
        while not done.is_set():
            os.killpg(process.pid, signal.SIGSTOP)
            done.wait(asleep)
            os.killpg(process.pid, signal.SIGCONT)
            done.wait(awake)

    thread = threading.Thread(target=doze)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def tracked(project, free_port, tmp_path):
    """Address and process of a server; no records of earlier runs are left to send."""
    if (project.cache / "outbox").exists():
        project.empty_cache("outbox")
    address = f"http://127.0.0.1:{free_port}"
    with server(address, tmp_path) as process:
        yield address, process


def assert_all_is_recorded(project, address):
    """Send what is left; every window's record is there once."""
    project.run_successfully("python -m dayahead track --sync", MLFLOW_TRACKING_URI=address)
    client = MlflowClient(address)
    (experiment,) = client.search_experiments(filter_string="name = 'dayahead'")
    runs = client.search_runs([experiment.experiment_id], "tags.`dvc.stage` = 'train'")
    assert [run.info.status for run in runs] == ["FINISHED"]
    history = client.get_metric_history(runs[0].info.run_id, "ndcg_at_20")
    assert len(history) == len({point.step for point in history}) == N_WINDOWS - 1


def end_in_time(process, reference, start):
    status, output = wait(process)
    assert status == 0, output
    assert time.monotonic() - start < 3 * reference.seconds + TIMEOUT
    return output


def test_the_server_is_down(project, reference):
    project.run_successfully(TRAIN, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    project.assert_completes(reference)


def test_the_server_takes_seconds_to_answer(project, reference, tracked):
    address, process = tracked
    start = time.monotonic()
    with slowed(process, asleep=3, awake=0.3):
        end_in_time(project.start(TRAIN, MLFLOW_TRACKING_URI=address), reference, start)
    assert_all_is_recorded(project, address)
    project.assert_completes(reference)


def test_the_server_never_answers(project, reference, tracked):
    address, process = tracked
    os.killpg(process.pid, signal.SIGSTOP)
    start = time.monotonic()
    train = project.start(TRAIN, MLFLOW_TRACKING_URI=address)
    assert "tracking: " in end_in_time(train, reference, start)
    os.killpg(process.pid, signal.SIGCONT)
    assert_all_is_recorded(project, address)
    project.assert_completes(reference)


def test_the_server_sleeps_and_comes_back(project, reference, tracked):
    address, process = tracked
    start = time.monotonic()
    train = project.start_training(n_evaluated=2, MLFLOW_TRACKING_URI=address)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(reference.seconds / 2)
    os.killpg(process.pid, signal.SIGCONT)
    end_in_time(train, reference, start)
    assert_all_is_recorded(project, address)
    project.assert_completes(reference)


def test_records_that_cannot_be_sent_are_named(project, tracked):
    address, process = tracked
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    project.run_successfully(TRAIN, MLFLOW_TRACKING_URI=address)
    sync = project.run("python -m dayahead track --sync", MLFLOW_TRACKING_URI=address)
    assert_error(sync, r"error: not yet (sent|uploaded):\n.*/train: ")
