"""Processes that are killed or stopped by a signal at seeded random times."""

import random
import signal
import time

import pytest

from faults.harness import RESTARTED, TRAIN, assert_error, kill_within, wait, workers_of
from support.window_folders import bytes_in

pytestmark = pytest.mark.faults
stop_signals = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)


@pytest.mark.parametrize("seed", range(30))
def test_train_is_killed(project, reference, seed):
    kill_within(lambda: project.start(TRAIN), seed, 0, reference.seconds)
    project.assert_completes(reference)


@pytest.mark.parametrize("seed", range(5))
def test_aggregate_is_killed(project, reference, seed):
    project.run_successfully(TRAIN)
    start = time.perf_counter()
    project.run_successfully("python stages/aggregate.py")
    seconds = time.perf_counter() - start
    kill_within(lambda: project.start("python stages/aggregate.py"), seed, 0, seconds)
    project.assert_completes(reference)


def assert_stops(project, number, status):
    process = project.start_training()
    process.send_signal(number)
    outcome = wait(process)
    assert_error(outcome, rf"error: stopped by {number.name}; run again: finished work is kept")
    assert outcome[0] == status


@stop_signals
def test_train_stops_on_a_signal(project, reference, number, status):
    assert_stops(project, number, status)
    project.assert_completes(reference)


@stop_signals
def test_two_processes_stop_on_a_signal(project, reference_of_two, number, status):
    assert_stops(project, number, status)
    project.assert_completes(reference_of_two)


@pytest.mark.parametrize("seed", range(4))
def test_one_of_two_processes_is_killed(project, reference_of_two, seed):
    assert_restarts(project, seed)
    project.assert_completes(reference_of_two)


@pytest.mark.parametrize("seed", range(4, 7))
def test_one_of_two_processes_that_shard_the_items_is_killed(project, sharded_reference, seed):
    assert_restarts(project, seed)
    project.assert_completes(sharded_reference)


def assert_restarts(project, seed):
    """Kill one of two processes; all go on by themselves, from the last cached fit."""
    stream = random.Random(seed)
    process = project.start_training(n_evaluated=stream.randrange(9))
    stream.choice(workers_of(process)).kill()
    status, output = wait(process)
    assert status == 0, output
    assert output.count(RESTARTED) == 1
    assert "Traceback" not in output


@pytest.fixture
def windows(project):
    """Content of data/windows; two workers preprocess, and find nothing in the cache."""
    with project.changed("machine", workers=2):
        whole = bytes_in(project.windows)
        project.empty_cache("windows")
        yield whole


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_of_preprocess_is_killed(project, windows, seed):
    process = project.start("python stages/preprocess.py")
    while process.poll() is None and len(workers_of(process)) < 2:
        time.sleep(0.05)
    stream = random.Random(seed)
    time.sleep(stream.uniform(0, 6))
    stream.choice(workers_of(process)).kill()
    status, output = wait(process)
    assert status == 0, output
    assert bytes_in(project.windows) == windows


@pytest.mark.parametrize("seed", range(3))
def test_preprocess_is_killed(project, windows, seed):
    kill_within(lambda: project.start("python stages/preprocess.py"), seed, 1, 15)
    project.run_successfully("python stages/preprocess.py")
    assert bytes_in(project.windows) == windows


@pytest.mark.parametrize("seed", range(3))
def test_download_is_killed(project, seed):
    whole = bytes_in(project.folder / "data" / "raw")
    project.empty_cache("events")
    kill_within(lambda: project.start("python stages/download.py"), seed, 0.5, 6)
    project.run_successfully("python stages/download.py")
    assert bytes_in(project.folder / "data" / "raw") == whole
