import json
import multiprocessing
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.tracking.journal import Journal, WindowLog, harmless, numbers, warn_once


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "execution/train.jsonl")


def window(step):
    return {"step": step, "timestamp_ms": 10**12, "metrics": {"loss": 0.5, "none": None}}


def test_what_is_appended_is_read_in_order(journal):
    journal.append("start", id="a")
    journal.append("end", status="FINISHED")
    (first, start), (second, end) = journal.read()
    assert (start["kind"], end["status"]) == ("start", "FINISHED")
    assert [entry["kind"] for _, entry in journal.read(first)] == ["end"]
    assert second == journal.path.stat().st_size
    assert journal.start() == start


@given(cut=st.integers(0, 200))
def test_a_torn_line_costs_no_other(cut, tmp_path_factory):
    journal = Journal(tmp_path_factory.mktemp("torn") / "train.jsonl")
    journal.append("start", id="a")
    journal.append("params", params={"x": "1"})
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[: min(cut, len(whole))])
    survivors = [entry["kind"] for _, entry in journal.read()]
    journal.append("end", status="FINISHED")
    # A line that lacks nothing but its newline is whole once another line follows.
    kinds = [entry["kind"] for _, entry in journal.read()]
    assert kinds in ([*survivors, "end"], ["start", "end"], ["start", "params", "end"])
    assert kinds[: len(survivors)] == survivors


def _append_many(journal, name):
    for n in range(50):
        journal.append("params", params={name: "x" * 500 + str(n)})


def test_processes_may_append_at_once(journal):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(journal, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    entries = journal.entries("params")
    assert len(entries) == 100
    assert [e["params"]["a"][500:] for e in entries if "a" in e["params"]] == [
        str(n) for n in range(50)
    ]


def test_the_window_log_can_be_pickled_and_skips_known_windows(journal):
    """A stage's processes are started again, and tell of every window from the first on."""
    pickled = pickle.dumps(WindowLog(journal))
    for steps in ((0,), (0, np.int64(1))):
        log = pickle.loads(pickled)
        for step in steps:
            log(window(step))
    first, entry = journal.entries("metrics")
    assert (first["step"], entry["step"], entry["timestamp"]) == (0, 1, 10**12)
    assert entry["metrics"] == {"loss": 0.5}


def test_the_window_log_never_raises(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    warn_once.cache_clear()
    log = WindowLog(Journal(tmp_path / "file/train.jsonl"))
    log(window(0))
    log(window(1))
    log({"nonsense": 1})
    assert len(caplog.messages) == 2


def test_a_warning_holds_no_credentials(caplog):
    @harmless
    def fails():
        raise OSError("https://me:p@ss@host/x?token=abc refused")

    warn_once.cache_clear()
    fails()
    assert "https://***@host/x?*** refused" in caplog.text


def test_numbers_are_plain_floats():
    metrics = numbers({"a": np.float32(0.5), "b": 1, "c": None})
    assert json.dumps(metrics) == '{"a": 0.5, "b": 1.0}'


def test_kept_files_outlive_their_originals(journal, tmp_path):
    (tmp_path / "ranks/deep").mkdir(parents=True)
    (tmp_path / "ranks/deep/a.parquet").write_text("1")
    (tmp_path / "link.csv").symlink_to(tmp_path / "ranks/deep/a.parquet")
    folder, file = journal.keep(tmp_path / "ranks"), journal.keep(tmp_path / "link.csv")
    (tmp_path / "ranks/deep/a.parquet").unlink()
    kept = journal.path.parent
    assert (kept / folder / "deep/a.parquet").read_text() == "1"
    assert (kept / file).read_text() == "1"
    assert not (kept / file).is_symlink()
