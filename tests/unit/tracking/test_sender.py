"""The process that sends a stage's records, and what becomes of it when the stage is killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from dayahead.core.errors import BusyError
from dayahead.tracking import sender, sync
from dayahead.tracking.outbox import Outbox
from dayahead.tracking.sender import background_sender
from dayahead.tracking.sync import sync_all
from support.recording_sink import Recorder
from support.tracked_stages import points_of, runs_of
from support.waiting import wait_until

STAGE = """
import sys, time
from dayahead.config.params import load_params
from dayahead.tracking.runs import stage_run

with stage_run("train", load_params()) as run:
    assert not {"mlflow", "torch"} & {*sys.modules}
    run.log_window({"step": 0, "timestamp_ms": 10**12, "metrics": {"ndcg_at_20": 0.5}})
    print("here", flush=True)
    sys.stdin.read()
"""


def start_stage():
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", STAGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout.readline() == "here\n"
    (child,) = psutil.Process(process.pid).children()
    return process, child


def train_run(store):
    (train,) = runs_of(store)["train"]
    return train


@pytest.mark.slow
def test_a_stage_ends_when_its_records_have_arrived(store, project):
    (project / "queue.py").write_text("raise ImportError('not the one of Python')")
    stage, child = start_stage()
    wait_until(lambda: "train" in runs_of(store), 60)
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the stage
        os.kill(child.pid, number)
    _, errors = stage.communicate()
    assert (stage.returncode, errors) == (0, "")
    assert not child.is_running()
    assert train_run(store).info.status == "FINISHED"
    assert points_of(store, train_run(store)) == [(0, 0.5)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGKILL, "train: killed"), (signal.SIGINT, "train: stopped by SIGINT")],
)
def test_the_records_of_a_stopped_stage_still_arrive(store, number, error):
    stage, child = start_stage()
    os.killpg(stage.pid, number)
    stage.communicate()
    wait_until(lambda: not child.is_running(), 60)
    train = train_run(store)
    assert (train.info.status, train.data.tags["error"]) == ("KILLED", error)
    assert points_of(store, train) == [(0, 0.5)]
    assert sync_all().uploaded == {}


@pytest.fixture
def outbox(project):
    outbox = Outbox(project / ".dayahead/outbox/lofty-sail/train.jsonl")
    outbox.append("start", sinks=["mlflow"])
    outbox.append("end", status="FINISHED")
    return outbox


@pytest.mark.long
def test_a_finished_stage_waits_for_no_longer_than_it_says(outbox, monkeypatch, caplog):
    monkeypatch.setattr(sender, "CLOSE_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # it accepts, and never answers
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        start = time.monotonic()
        with background_sender(outbox, ["mlflow"]):
            pass
    assert time.monotonic() - start < 50  # the request would last for 60
    assert "records of train are left after 1 seconds; `python -m dayahead track" in caplog.text


def test_a_sender_that_dies_is_a_warning(outbox, monkeypatch, caplog):
    started, start = [], sender._start
    monkeypatch.setattr(
        sender, "_start", lambda *given: started.append(start(*given)) or started[0]
    )
    with background_sender(outbox, ["mlflow"]):
        started[0].kill()
    assert "sends the records of train ended with -9; `python -m dayahead" in caplog.text


def test_the_last_records_wait_for_who_is_sending(outbox, monkeypatch):
    sent, over = [], threading.Event()
    monkeypatch.setattr(Recorder, "upload", lambda self, box: sent.append(box))
    monkeypatch.setattr(sync, "open_sink", lambda kind: Recorder())
    over.set()
    with ThreadPoolExecutor() as threads:
        with outbox.lock("tensorboard"):
            sending = threads.submit(sync.send, outbox, ["tensorboard"], over)
            time.sleep(0.3)
            assert not sending.done()
        sending.result(30)
    assert sent == [outbox]


def test_a_sender_that_cannot_start_stops_no_stage(outbox, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "missing")
    with background_sender(outbox, ["mlflow"]):
        pass
    assert "the records stay in the outbox" in caplog.text


def test_an_outbox_is_held_while_its_stage_runs(outbox):
    outbox.append("start")
    with background_sender(outbox, []):
        with background_sender(outbox, []):  # the stage started again, while the first one ends
            pass
        with pytest.raises(BusyError, match="the stage is running"):
            outbox.end_if_killed()
        assert outbox.is_open()
    outbox.end_if_killed()
    assert [entry["status"] for entry in outbox.entries("end")] == ["FINISHED", "KILLED"]
