import multiprocessing
import subprocess
import sys

import psutil
import pytest
from filelock import Timeout
from hypothesis import given
from hypothesis import strategies as st

from dayahead.tracking.outbox import (
    NIGHTS_DVC,
    PIPELINE_RUN,
    Outbox,
    never_raising,
    outbox_for,
    outboxes,
    pipeline_run_key,
)

# Two "stages" that end when their standard input does, with the launcher.
LAUNCH = """
import subprocess, sys
stages = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2)]
print(*(stage.pid for stage in stages), flush=True)
stages[0].wait()
"""


@pytest.fixture
def outbox(tmp_path):
    return Outbox(tmp_path / "run/train.jsonl")


def kinds_in(outbox, offset=0):
    return [entry["kind"] for _, entry in outbox.read(offset)]


def test_entries_are_read_in_order_from_any_offset(outbox):
    outbox.append("start", id="a")
    outbox.append("end", status="FINISHED")
    (first, start), (second, end) = outbox.read()
    assert (start["kind"], end["status"]) == ("start", "FINISHED")
    assert kinds_in(outbox, first) == ["end"]
    assert second == outbox.path.stat().st_size
    assert outbox.start() == start


@given(cut=st.integers(0, 200))
def test_a_torn_line_costs_no_other(cut, tmp_path_factory):
    outbox = Outbox(tmp_path_factory.mktemp("torn") / "train.jsonl")
    outbox.append("start", id="a")
    outbox.append("window", metrics={"x": "1"})
    written = outbox.path.read_bytes()
    outbox.path.write_bytes(written[: min(cut, len(written))])
    survivors = kinds_in(outbox)
    outbox.append("end", status="FINISHED")
    # A line that lacks nothing but its newline is complete once another line follows.
    kinds = kinds_in(outbox)
    assert kinds in ([*survivors, "end"], ["start", "end"], ["start", "window", "end"])
    assert kinds[: len(survivors)] == survivors


def _append_many(outbox, name):
    for n in range(50):
        outbox.append(name, text="x" * 500 + str(n))


def test_processes_may_append_at_once(outbox):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(outbox, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for name in "ab":
        assert [entry["text"][500:] for entry in outbox.entries(name)] == [
            str(n) for n in range(50)
        ]


def test_only_one_holds_the_lock(outbox):
    outbox.append("start")
    with outbox.lock(), pytest.raises(Timeout):
        outbox.lock().acquire()
    outbox.lock().acquire()


def test_an_outbox_is_open_until_its_last_start_has_an_end(outbox):
    for kind, is_open in (("start", True), ("end", False), ("window", False), ("start", True)):
        outbox.append(kind)
        assert outbox.is_open() == is_open


def test_a_warning_holds_no_credentials_and_is_given_once(caplog):
    for _ in range(2):
        with never_raising("skipped"):
            raise OSError("https://me:p@ss@host/x?token=abc refused")
    assert "https://***@host/x?*** refused" in caplog.text
    assert len(caplog.messages) == 1


def test_added_files_outlive_their_originals(outbox, tmp_path):
    (tmp_path / "ranks/deep").mkdir(parents=True)
    (tmp_path / "ranks/deep/a.parquet").write_text("1")
    (tmp_path / "link.csv").symlink_to(tmp_path / "ranks/deep/a.parquet")
    folder, file = outbox.add_file(tmp_path / "ranks"), outbox.add_file(tmp_path / "link.csv")
    (tmp_path / "ranks/deep/a.parquet").unlink()
    beside = outbox.path.parent
    assert (beside / folder / "deep/a.parquet").read_text() == "1"
    assert (beside / file).read_text() == "1"
    assert not (beside / file).is_symlink()


def test_a_restarted_stage_continues_its_outbox_unless_its_inputs_changed(cold_project):
    first = outbox_for("train", "f1")
    first.append("start", fingerprint="f1")
    assert outbox_for("train", "f1") == first
    changed = outbox_for("train", "f2")
    assert changed.path.parent.name == "lofty-sail-2"
    changed.append("start", fingerprint="f2")
    assert outbox_for("aggregate", "f3").path.parent == changed.path.parent


def test_outboxes_are_in_the_order_of_their_starts(cold_project):
    for at, stage in ((2, "aggregate"), (1, "train")):
        outbox_for(stage, None).append("start", at=at)
    assert [outbox.path.stem for outbox in outboxes()] == ["train", "aggregate"]


def test_an_experiment_is_a_pipeline_run(monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "a/b c")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "0123456789")
    assert pipeline_run_key() == "a_b_c-0123456"
    monkeypatch.setenv(PIPELINE_RUN, "dvc-71-1.50")  # of a stage that a launcher started
    assert pipeline_run_key() == "dvc-71-1.50"


@pytest.mark.parametrize("launcher", ["dvc", "repro.py", "other"])
def test_stages_of_one_dvc_process_are_one_pipeline_run(cold_project, monkeypatch, launcher):
    assert NIGHTS_DVC.exists()
    monkeypatch.setattr("dayahead.tracking.outbox.NIGHTS_DVC", cold_project / "repro.py")
    monkeypatch.delenv("DVC_EXP_NAME")
    script = cold_project / launcher
    script.write_text(LAUNCH)
    launched = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        keys = []
        for pid in launched.stdout.readline().split():
            monkeypatch.setattr("os.getpid", lambda pid=pid: int(pid))
            keys.append(pipeline_run_key())
    finally:
        launched.kill()
        launched.communicate()
    assert keys[0].startswith("alone-" if launcher == "other" else "dvc-")
    assert (keys[0] == keys[1]) == (launcher != "other")


def test_setting_the_clock_does_not_change_the_pipeline_run(monkeypatch):
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    key, boot_time = pipeline_run_key(), psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_time - 3600)
    assert pipeline_run_key() == key
