"""Uploads: idempotent, resumed after any interruption, in the background and by `sync_all`."""

import shutil
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowException

from dayahead.tracking import sync, uploader
from dayahead.tracking.outbox import Outbox, outboxes
from dayahead.tracking.runs import stage_run
from dayahead.tracking.sinks import Progress
from dayahead.tracking.store import Store
from dayahead.tracking.sync import sync_all
from dayahead.tracking.uploader import Uploader
from support.tracked_stages import (
    CURVE,
    NOWHERE,
    has_points,
    plain_package,
    points_of,
    run_stage,
    runs_of,
    window,
)
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def _plain_packages(monkeypatch):
    monkeypatch.setattr(uploader, "package_model", plain_package)


def outbox_in(folder: Path, name: str, stage: str = "train", **start) -> Outbox:
    """An outbox with every kind of entry."""
    outbox = Outbox(folder / name / f"{stage}.jsonl")
    entry = {
        "at": 1000,
        "id": f"{name}-{stage}",
        "pipeline_run": name,
        "experiment": "dayahead",
        "stage": stage,
        "name": name,
        "tags": {"git.commit": "abc"},
        "fingerprint": f"print-{stage}",
        "params": {f"section.key{n}": str(n) for n in range(150)},
        "stage_params": {"section.key0": "0"},
        "upstream": {},
    }
    outbox.append("start", **entry | start)
    for step in range(3):
        outbox.append("window", step=step, timestamp=step, metrics={"ndcg_at_20": step / 8})
    (folder / "ranks").mkdir(exist_ok=True)
    (folder / "ranks/a.parquet").write_text("ranks")
    outbox.append("artifact", file=outbox.add_file(folder / "ranks"), into=None)
    outbox.append("artifact", file=outbox.add_file(folder / "ranks/a.parquet"), into="x")
    outbox.append("model", file=outbox.add_file(folder / "ranks"), code="x.py", package="x")
    outbox.append("input", name="raw", source="data/raw", digest="d" * 64)
    outbox.append("metrics", step=0, metrics={"aod": 1.0}, at=1500)
    outbox.append("end", status="FINISHED", at=2000)
    return outbox


def content_of(store, outbox):
    """All that a store has of an outbox's two runs, except random ids."""
    progress = Progress.of(outbox)
    found = []
    for run in map(store.client.get_run, (progress.run, progress.parent)):
        files = store.client.list_artifacts(run.info.run_id)
        found.append(
            (
                run.info.status,
                (run.info.start_time, run.info.end_time),
                points_of(store, run) + points_of(store, run, "aod"),
                run.data.params,
                sorted(set(run.data.tags)),
                sorted(file.path for file in files),
                [entry.dataset.name for entry in run.inputs.dataset_inputs],
                len(run.outputs.model_outputs if run.outputs else []),
            )
        )
    return found


def test_an_outbox_becomes_a_parent_and_a_nested_run(store, tmp_path):
    outbox = outbox_in(tmp_path, "one")
    assert Uploader(store).upload(outbox) == 10
    nested, parent = content_of(store, outbox)
    assert nested[0] == parent[0] == "FINISHED"
    assert nested[1] == parent[1] == (1000, 2000)
    assert nested[2] == parent[2] == [(0, 0), (1, 0.125), (2, 0.25), (0, 1)]
    assert len(parent[3]) == 150
    assert nested[3] == {"section.key0": "0"}
    assert nested[5] == ["ranks", "x"]
    assert nested[6:] == (["raw"], 1)


def test_a_model_that_cannot_be_packaged_holds_nothing_up(store, tmp_path, monkeypatch, caplog):
    def failing(*_):
        raise MlflowException("the code sets no model")

    monkeypatch.setattr(uploader, "package_model", failing)
    outbox = outbox_in(tmp_path, "one")
    assert Uploader(store).upload(outbox) == 10
    nested, _ = content_of(store, outbox)
    assert (nested[0], nested[-1]) == ("FINISHED", 0)
    assert "the model is not uploaded" in caplog.text


def test_a_model_that_the_stage_has_packaged_is_uploaded(store, tmp_path):
    """As 0.1.0 recorded it."""
    outbox = outbox_in(tmp_path, "one")
    text = outbox.path.read_text().replace(', "code": "x.py", "package": "x"', "")
    outbox.path.write_text(text)
    Uploader(store).upload(outbox)
    assert content_of(store, outbox)[0][-1] == 1


def test_nothing_is_uploaded_twice_and_copied_files_are_removed(store, tmp_path):
    outbox = outbox_in(tmp_path, "one")
    Uploader(store).upload(outbox)
    before = content_of(store, outbox)
    assert Uploader(store).upload(outbox) == 0
    assert content_of(store, outbox) == before
    assert not any(outbox.path.with_suffix(".files").iterdir())
    assert (tmp_path / "ranks/a.parquet").exists()


class Deadly:
    """An MLflow client whose uploader dies right after the n-th call has reached the store."""

    def __init__(self, client, n_calls):
        self._client, self._left = client, n_calls

    def __getattr__(self, name):
        def call(*args, **kwargs):
            result = getattr(self._client, name)(*args, **kwargs)
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
            return result

        return call


def deaths(store, folder, calls):
    """Let an uploader die after each of `calls`; yield what the store has after a second one."""
    for n_calls in calls:
        outbox = outbox_in(folder, f"died-{n_calls}")
        deadly = Store(store.root)
        deadly.__dict__["client"] = Deadly(store.client, n_calls)
        with pytest.raises(KeyboardInterrupt):
            Uploader(deadly).upload(outbox)
        Uploader(store).upload(outbox)
        yield content_of(store, outbox)


@pytest.mark.parametrize("calls", [(2, 9, 19), pytest.param(range(1, 35), marks=pytest.mark.slow)])
def test_an_uploader_may_die_after_any_call(store, tmp_path, calls):
    undisturbed = outbox_in(tmp_path, "undisturbed")
    Uploader(store).upload(undisturbed)
    expected = content_of(store, undisturbed)
    assert all(found == expected for found in deaths(store, tmp_path, calls))
    assert len(runs_of(store)["train"]) == len(runs_of(store)["pipeline"]) == 1 + len(calls)


def test_rejected_entries_hold_up_nothing(store, tmp_path, caplog):
    Uploader(store).upload(outbox_in(tmp_path, "one", "download"))
    outbox = outbox_in(tmp_path, "one", params={"section.key0": "changed"})
    outbox.append("metrics", step=0, metrics={"recall@20": 1.0})
    outbox.append("artifact", file="lost/file", into=None)
    outbox.append("metrics", step=0, metrics={"last": 1.0})
    Uploader(store).upload(outbox)
    assert store.client.get_run(Progress.of(outbox).run).data.metrics["last"] == 1.0
    for rejected in ("section.key0", "recall@20", "lost/file"):
        assert rejected in caplog.text


def test_a_skipped_stage_is_found_by_its_fingerprint(store, tmp_path):
    uploader = Uploader(store)
    uploader.upload(outbox_in(tmp_path, "older"))
    older = runs_of(store)["train"][0].info.run_id
    later = Outbox(tmp_path / "later/aggregate.jsonl")
    start = outbox_in(tmp_path, "unsent").start()
    ids = {"id": "y", "pipeline_run": "z", "stage": "aggregate"}
    later.append(**start | ids | {"upstream": {"train": "print-train", "x": "unknown"}})
    uploader.upload(later)
    progress = Progress.of(later)
    parent, nested = map(store.client.get_run, (progress.parent, progress.run))
    assert parent.data.tags["lineage.train"] == nested.data.tags["lineage.train"] == older
    assert parent.data.tags["lineage.aggregate"] == progress.run
    assert "lineage.x" not in parent.data.tags
    assert points_of(store, parent) == [(0, 0), (1, 0.125), (2, 0.25)]
    assert points_of(store, nested) == []


@pytest.mark.long
def test_a_stage_of_the_same_pipeline_run_is_preferred(store, tmp_path):
    uploader = Uploader(store)
    same = outbox_in(tmp_path, "same", at=500)
    uploader.upload(same)
    uploader.upload(outbox_in(tmp_path, "newer", at=900))
    last = outbox_in(tmp_path, "same", "aggregate", upstream={"train": "print-train"})
    uploader.upload(last)
    parent = store.client.get_run(Progress.of(last).parent)
    assert parent.data.tags["lineage.train"] == Progress.of(same).run
    assert len(runs_of(store)["pipeline"]) == 2


@pytest.mark.long
def test_records_of_an_unreachable_server_are_uploaded_later(project):
    start = time.time()
    for stage in ("download", "train"):
        status, output = run_stage(stage, MLFLOW_TRACKING_URI=NOWHERE)
        assert status == 0
        (line,) = output.splitlines()
        assert "does not answer" in line
        assert "track --sync" in line
    report = sync_all()
    assert report.uploaded == {"lofty-sail/download": 7, "lofty-sail/train": 7}
    assert report.failures == {}
    store = Store(project)
    runs = runs_of(store)
    (parent,), (train,) = runs["pipeline"], runs["train"]
    assert points_of(store, train) == points_of(store, parent) == CURVE
    assert parent.info.status == train.info.status == "FINISHED"
    assert start * 1000 - 1 < parent.info.start_time < train.info.start_time <= train.info.end_time
    assert train.data.tags["lineage.download"] == runs["download"][0].info.run_id
    assert sync_all().uploaded == {}
    assert points_of(store, train) == CURVE


def test_records_arrive_while_the_stage_runs(store, project, params):
    with stage_run("train", params) as run:
        run.log_window(window(0))
        wait_until(lambda: has_points(store))
        runs = runs_of(store)
        assert runs["train"][0].info.status == "RUNNING"
        assert runs["pipeline"][0].info.status == "RUNNING"
        # Nobody else takes a running stage for a killed one, or uploads its outbox.
        assert sync_all().failures == {"lofty-sail/train": "being uploaded by another process"}
    assert runs_of(store)["train"][0].info.status == "FINISHED"


def test_a_store_that_fails_for_a_while_is_tried_again(store, project, params, monkeypatch, caplog):
    monkeypatch.setattr(sync, "PAUSE_SECONDS", 0.05)
    is_down = threading.Event()

    def failing(upload):
        def guarded(self, outbox):
            if is_down.is_set():
                raise ConnectionError("https://me:secret@host is gone")
            return upload(self, outbox)

        return guarded

    monkeypatch.setattr(Uploader, "upload", failing(Uploader.upload))
    with stage_run("train", params) as run:
        run.log_window(window(0))
        wait_until(lambda: has_points(store))
        is_down.set()
        run.log_window(window(1))
        wait_until(lambda: "does not answer" in caplog.text)
        is_down.clear()
        run.log_window(window(2))
    (train,) = runs_of(store)["train"]
    assert points_of(store, train) == CURVE[:3]
    assert caplog.text.count("does not answer") == 1
    assert "secret" not in caplog.text


def connections_to(server):
    """The number of connections that wait to be accepted."""
    server.setblocking(False)
    n_waiting = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            n_waiting += 1
    return n_waiting


@pytest.mark.slow
def test_a_finished_stage_waits_once_for_a_server_that_hangs(project):
    """It accepts connections and never answers; each request costs MLflow's timeout."""

    def seconds_with(uri):
        start = time.time()
        status, output = run_stage(
            "train", MLFLOW_TRACKING_URI=uri, MLFLOW_HTTP_REQUEST_TIMEOUT="3"
        )
        assert status == 0
        assert "does not answer" in output
        return time.time() - start

    of_imports = seconds_with(NOWHERE)  # which refuses at once
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        seconds = seconds_with(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        assert connections_to(deaf) == 1
    assert seconds - of_imports < 6
    assert sync_all().failures == {}


@pytest.mark.parametrize(
    "uri",
    ["http://me:SECRET@127.0.0.1:9/x?token=SECRET", "postgresql://me:SECRET@127.0.0.1:9/db"],
)
def test_credentials_of_the_store_reach_no_file_and_no_message(project, monkeypatch, uri):
    status, output = run_stage("train", MLFLOW_TRACKING_URI=uri)
    assert status == 0
    assert "SECRET" not in output
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    report = sync_all()
    assert [*report.failures] == ["lofty-sail/train"]
    assert "SECRET" not in f"{report}"
    files = [path for path in project.rglob("*") if path.is_file()]
    assert [path for path in files if b"SECRET" in path.read_bytes()] == []


@pytest.mark.long
def test_a_killed_stage_is_marked_by_the_next_one(store, project):
    assert run_stage("train", "kill")[0] == -9
    assert run_stage("download", DVC_EXP_NAME="other")[0] == 0
    runs = runs_of(store)
    assert runs["train"][0].info.status == "KILLED"
    assert {run.info.status for run in runs["pipeline"]} == {"KILLED", "FINISHED"}
    assert points_of(store, runs["train"][0]) == CURVE[:3]


def damage_progress(outbox):
    Progress.path(outbox).write_text('{"store": "sql')


def damage_start(outbox):
    _, *rest = outbox.path.read_bytes().splitlines(keepends=True)
    outbox.path.write_bytes(b'{"kind": "sta\n' + b"".join(rest[1:]))


def damage_line(outbox):
    outbox.path.write_bytes(outbox.path.read_bytes().replace(b'"step": 1', b'"stfp": 1'))


@pytest.mark.long
@pytest.mark.parametrize("damage", [damage_start, damage_line])
def test_a_damaged_outbox_holds_up_no_other(store, project, damage):
    run_stage("train", MLFLOW_TRACKING_URI=NOWHERE)
    (outbox,) = outboxes()
    damage(outbox)
    run_stage("download", DVC_EXP_NAME="other", MLFLOW_TRACKING_URI=NOWHERE)
    assert sync_all().failures == {}
    runs = runs_of(store)
    assert runs["download"][0].info.status == "FINISHED"
    if damage == damage_line:
        assert points_of(store, runs["train"][0]) == [p for p in CURVE if p[0] != 1]


def test_a_damaged_outbox_of_an_earlier_stage_holds_up_no_later_one(
    store, project, params, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
        with stage_run("download", params) as run:
            pass
    content = run.outbox.path.read_bytes()
    run.outbox.path.write_bytes(content.replace(b'"experiment"', b'"experimfnt"'))
    with stage_run("train", params):
        pass
    assert [each.info.status for each in runs_of(store)["train"]] == ["FINISHED"]


@pytest.mark.long
def test_lost_progress_loses_and_doubles_no_record(store, project):
    assert run_stage("train")[0] == 0
    (outbox,) = outboxes()
    damage_progress(outbox)
    assert sync_all().failures == {}
    (train,) = runs_of(store)["train"]
    assert points_of(store, train) == CURVE


@pytest.mark.long
def test_records_stay_together_in_one_store(project, empty_database, monkeypatch):
    shutil.copy(empty_database, project / "other.db")
    run_stage("train", MLFLOW_TRACKING_URI="sqlite:///other.db")
    (outbox,) = outboxes()
    outbox.append("metrics", step=0, metrics={"late": 1.0})
    report = sync_all()
    assert report.uploaded == {}
    assert report.failures == {
        "lofty-sail/train": f"its first records are in sqlite:///{project}/other.db; "
        f"set MLFLOW_TRACKING_URI to it"
    }
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
    assert sync_all().uploaded == {"lofty-sail/train": 1}
