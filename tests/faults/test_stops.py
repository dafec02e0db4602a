"""Processes that are told to stop, or killed at seeded moments."""

import os
import random
import signal
import time

import pytest

from faults.outcomes import ends_equal, refused, under_way, workers_of
from support.window_folders import bytes_in

pytestmark = pytest.mark.faults


def told_to_stop(project, number):
    process = under_way(project)
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_train_is_told_to_stop(project, undisturbed, number, status):
    project.forget()
    outcome = told_to_stop(project, number)
    refused(outcome, rf"error: stopped by {number.name}; run again: what is finished is kept")
    assert outcome[0] == status
    ends_equal(project, undisturbed)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_two_processes_are_told_to_stop(project, undisturbed_pair, number, status):
    outcome = told_to_stop(project, number)
    refused(outcome, rf"error: stopped by {number.name}; run again: what is finished is kept")
    assert outcome[0] == status
    ends_equal(project, undisturbed_pair)


@pytest.mark.parametrize("seed", range(4))
def test_one_of_two_processes_is_killed(project, undisturbed_pair, seed):
    """They are started again by themselves, from the last fit."""
    goes_on_without_one(project, seed)
    ends_equal(project, undisturbed_pair)


@pytest.mark.parametrize("seed", range(4, 7))
def test_one_of_two_that_share_the_items_out_is_killed(project, undisturbed_sharing, seed):
    goes_on_without_one(project, seed)
    ends_equal(project, undisturbed_sharing)


def goes_on_without_one(project, seed):
    """Kill one of two processes at a seeded moment."""
    dice = random.Random(seed)
    process = under_way(project, n_measured=dice.randrange(9))
    dice.choice(workers_of(process)).kill()
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.count("all are started again") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("seed", range(5))
def test_aggregate_is_killed(project, undisturbed, seed):
    project.forget()
    assert project.stage("train")[0] == 0
    start = time.perf_counter()
    assert project.stage("aggregate")[0] == 0
    seconds = time.perf_counter() - start
    process = project.start("python stages/aggregate.py")
    time.sleep(random.Random(seed).uniform(0, seconds))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    ends_equal(project, undisturbed)


@pytest.fixture
def windows(project):
    """What preprocessing comes to; its store is emptied."""
    with project.changed("preprocess", workers=2):
        yield bytes_in(project.folder / "data" / "windows")


def anew(project, *shelves):
    """Begin a stage whose store is empty."""
    for shelf in shelves:
        store = project.folder / ".dayahead" / shelf
        store.rename(store.with_name(f"{shelf}-{time.monotonic_ns()}"))


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_of_preprocess_is_killed(project, windows, seed):
    anew(project, "windows")
    process = project.start("python stages/preprocess.py")
    while process.poll() is None and len(workers_of(process)) < 2:
        time.sleep(0.05)
    dice = random.Random(seed)
    time.sleep(dice.uniform(0, 6))
    dice.choice(workers_of(process)).kill()
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert bytes_in(project.folder / "data" / "windows") == windows


@pytest.mark.parametrize("seed", range(3))
def test_preprocess_is_killed(project, windows, seed):
    anew(project, "windows")
    process = project.start("python stages/preprocess.py")
    time.sleep(random.Random(seed).uniform(1, 15))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    status, said = project.stage("preprocess")
    assert status == 0, said
    assert bytes_in(project.folder / "data" / "windows") == windows


@pytest.mark.parametrize("seed", range(3))
def test_download_is_killed(project, seed):
    whole = bytes_in(project.folder / "data" / "raw")
    anew(project, "parts")
    process = project.start("python stages/download.py")
    time.sleep(random.Random(seed).uniform(0.5, 6))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    status, said = project.stage("download")
    assert status == 0, said
    assert bytes_in(project.folder / "data" / "raw") == whole
