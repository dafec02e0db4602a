"""A tracking server that is slow, sleeps, or comes back: the run goes on, every record arrives."""

import os
import signal
import time

import pytest
from mlflow import MlflowClient

from faults.outcomes import ends_equal, refused, under_way
from support.mlflow_servers import free_address, server, slowed

pytestmark = pytest.mark.faults
TIMEOUT = 75
"""Seconds a stage may wait for a server in the end: a minute of draining, and one request."""


@pytest.fixture
def tracked(project, undisturbed, tmp_path):
    """A server of its own, and no journals but those to come."""
    project.forget()
    journal = project.folder / ".dayahead" / "journal"
    if journal.exists():
        journal.rename(tmp_path / "journal")
    address = free_address()
    with server(address, tmp_path) as process:
        yield address, process


def sent_in_the_end(project, address):
    """Send what is left; whether every window's record is there, once."""
    status, said = project.run("python -m dayahead track --sync", MLFLOW_TRACKING_URI=address)
    assert status == 0, said
    client = MlflowClient(address)
    (experiment,) = client.search_experiments(filter_string="name = 'dayahead'")
    runs = client.search_runs([experiment.experiment_id], "tags.`dvc.stage` = 'train'")
    assert [run.info.status for run in runs] == ["FINISHED"]
    history = client.get_metric_history(runs[0].info.run_id, "ndcg_at_20")
    assert len(history) == len({point.step for point in history}) == 11


def ended_in_time(process, undisturbed, begun):
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert time.monotonic() - begun < 3 * undisturbed.seconds + TIMEOUT
    return said


def test_a_server_that_answers_after_seconds(project, undisturbed, tracked):
    address, process = tracked
    begun = time.monotonic()
    with slowed(process, asleep=3, awake=0.3):
        ended_in_time(
            project.start("python stages/train.py", MLFLOW_TRACKING_URI=address),
            undisturbed,
            begun,
        )
    sent_in_the_end(project, address)
    ends_equal(project, undisturbed)


def test_a_server_that_never_answers(project, undisturbed, tracked):
    address, process = tracked
    os.killpg(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    train = project.start("python stages/train.py", MLFLOW_TRACKING_URI=address)
    assert "does not answer" in ended_in_time(train, undisturbed, begun)
    os.killpg(process.pid, signal.SIGCONT)
    sent_in_the_end(project, address)
    ends_equal(project, undisturbed)


def test_a_server_that_sleeps_on_the_way_and_comes_back(project, undisturbed, tracked):
    address, process = tracked
    begun = time.monotonic()
    train = under_way(project, n_measured=2, MLFLOW_TRACKING_URI=address)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(undisturbed.seconds / 2)
    os.killpg(process.pid, signal.SIGCONT)
    ended_in_time(train, undisturbed, begun)
    sent_in_the_end(project, address)
    ends_equal(project, undisturbed)


def test_what_a_server_misses_for_good_is_said(project, undisturbed, tracked):
    address, process = tracked
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert project.stage("train", MLFLOW_TRACKING_URI=address)[0] == 0
    sync = project.run("python -m dayahead track --sync", MLFLOW_TRACKING_URI=address)
    refused(sync, r"error: not yet sent:\n.*/train: ")
