"""Outboxes are removed once all trackers have their records, or where that is asked for."""

import os
import time

import pytest

from dayahead.core.files import write_json
from dayahead.tracking.outbox import Outbox
from dayahead.tracking.pruning import prune_outboxes
from dayahead.tracking.sinks import Progress

DAY = 86_400


@pytest.fixture
def outbox(tmp_path, monkeypatch):
    """Makes an outbox with a copied file of ranks, for these trackers; some have its records."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))

    def make(name, sinks=(), delivered=(), days_ago=0.0):
        made = Outbox(tmp_path / f".dayahead/outbox/{name}.jsonl")
        made.append("start", at=1, sinks=sinks)
        ranks = tmp_path / "ranks"
        ranks.mkdir(exist_ok=True)
        (ranks / "2026-01-02.parquet").write_text("session of u1")
        made.append("artifact", file=made.add_file(ranks), into=None)
        made.append("end", status="FINISHED")
        for kind in delivered:
            offset = made.path.stat().st_size
            write_json(Progress.path(made, kind), Progress("store", offset=offset)._asdict())
        then = time.time() - days_ago * DAY
        for path in (made.path, *made.path.with_suffix(".files").glob("*")):
            os.utime(path, (then, then))
        return made

    return make


def left(tmp_path):
    return sorted(path.name for path in (tmp_path / ".dayahead/outbox").rglob("*"))


@pytest.mark.parametrize(("sinks", "delivered"), [
    ((), ()), (("mlflow",), ("mlflow",)), (("mlflow", "wandb"), ("wandb", "mlflow")),
])  # fmt: skip
def test_an_outbox_that_all_trackers_have_goes_with_its_files(outbox, tmp_path, sinks, delivered):
    made = outbox("run/train", sinks, delivered)
    found = prune_outboxes(time.time() + 1)
    assert (found.removed, found.undelivered, found.running) == ([made.path], {}, [])
    assert left(tmp_path) == []


def test_one_that_a_tracker_lacks_stays_unless_asked_for(outbox, tmp_path):
    made = outbox("run/train", ("mlflow", "wandb"), ("mlflow",))
    other = outbox("run/aggregate", ("mlflow",), ("mlflow",))
    before = time.time() + 1
    found = prune_outboxes(before)
    assert found.undelivered == {made.path: ("wandb",)}
    assert found.removed == [other.path]
    assert "2026-01-02.parquet" in left(tmp_path)
    assert prune_outboxes(before, undelivered=True).removed == [made.path]
    assert left(tmp_path) == []


def test_one_with_a_record_after_the_last_that_was_sent_stays(outbox):
    made = outbox("run/train", ("mlflow",), ("mlflow",))
    made.append("metrics", step=0, metrics={})
    assert prune_outboxes(time.time() + 1).undelivered == {made.path: ("mlflow",)}


def test_only_those_as_old_are_removed(outbox):
    old, new = outbox("old/train", days_ago=4), outbox("new/train", days_ago=2)
    assert prune_outboxes(time.time() - 3 * DAY).removed == [old.path]
    assert new.path.exists()


def test_a_running_stage_s_outbox_stays_whatever_is_asked_for(outbox):
    made, sent = outbox("run/train"), outbox("run/nightly", ("mlflow",))
    with made.running(), sent.lock():
        found = prune_outboxes(time.time() + 1, undelivered=True)
    assert (found.removed, found.running) == ([], [sent.path, made.path])
    assert made.path.exists()


def test_files_that_an_outbox_left_behind_go(outbox, tmp_path):
    outbox("run/train").path.unlink()
    assert len(prune_outboxes(time.time() + 1).removed) == 1
    assert left(tmp_path) == []
