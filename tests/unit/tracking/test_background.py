import socket
import threading
import time

import psutil
import pytest

from dayahead.tracking import background as shipping
from dayahead.tracking.background import sync_all
from dayahead.tracking.pipeline_run import journals_of
from dayahead.tracking.runs import stage_run
from dayahead.tracking.store import open_store
from support.tracked_stages import CURVE, points_of, run_stage, runs_of, window

NOWHERE = "http://127.0.0.1:9"


def wait_until(condition):
    deadline = time.time() + 20
    while not condition():
        assert time.time() < deadline
        time.sleep(0.05)


def has_points(store):
    trains = runs_of(store).get("train", [])
    return any(points_of(store, train) for train in trains)


def test_a_server_that_is_down_costs_nothing_and_is_made_up_for(project):
    begun = time.time()
    for stage in ("download", "train"):
        status, said = run_stage(stage, MLFLOW_TRACKING_URI=NOWHERE)
        assert status == 0
        (line,) = said.splitlines()
        assert "does not answer" in line
        assert "track --sync" in line
    assert time.time() - begun < 30
    report = sync_all(project)
    assert (report.n_entries, report.left) == (14, [])
    store = open_store(project)
    runs = runs_of(store)
    (parent,), (train,) = runs["pipeline"], runs["train"]
    assert points_of(store, train) == points_of(store, parent) == CURVE
    assert parent.info.status == train.info.status == "FINISHED"
    assert begun * 1000 - 1 < parent.info.start_time < train.info.start_time < train.info.end_time
    assert train.data.tags["lineage.download"] == runs["download"][0].info.run_id
    assert sync_all(project).n_entries == 0
    assert points_of(store, train) == CURVE


def test_records_arrive_while_the_stage_runs(store, project, params):
    with stage_run("train", params) as run:
        run.log_window(window(0))
        wait_until(lambda: has_points(store))
        runs = runs_of(store)
        assert runs["train"][0].info.status == "RUNNING"
        assert runs["pipeline"][0].info.status == "RUNNING"
    assert runs_of(store)["train"][0].info.status == "FINISHED"


def test_a_store_that_fails_in_the_middle_is_asked_again(
    store, project, params, monkeypatch, caplog
):
    monkeypatch.setattr(shipping, "PAUSE_SECONDS", 0.05)
    down = threading.Event()

    def failing(send):
        def guarded(self, journal):
            if down.is_set():
                raise ConnectionError("https://me:secret@host is gone")
            return send(self, journal)

        return guarded

    monkeypatch.setattr(shipping.Sender, "send", failing(shipping.Sender.send))
    with stage_run("train", params) as run:
        run.log_window(window(0))
        wait_until(lambda: has_points(store))
        down.set()
        run.log_window(window(1))
        wait_until(lambda: "does not answer" in caplog.text)
        down.clear()
        run.log_window(window(2))
    (train,) = runs_of(store)["train"]
    assert points_of(store, train) == CURVE[:3]
    assert caplog.text.count("does not answer") == 1
    assert "secret" not in caplog.text


def test_a_server_that_hangs_is_waited_for_once(project):
    """It takes connections and never answers; MLflow's patience is what each request costs."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.time()
        patience = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}
        status, said = run_stage("train", MLFLOW_TRACKING_URI=uri, **patience)
        assert status == 0
        assert "does not answer" in said
        assert time.time() - begun < 6
    assert sync_all(project).left == []


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:SECRET@127.0.0.1:9/x?token=SECRET",
        "postgresql://me:SECRET@127.0.0.1:9/db",
        "nonesuch://me:SECRET@127.0.0.1:9",
    ],
)
def test_secrets_of_the_store_reach_no_file_and_no_line(project, monkeypatch, uri):
    status, said = run_stage("train", MLFLOW_TRACKING_URI=uri)
    assert status == 0
    assert "SECRET" not in said
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    report = sync_all(project)
    assert report.left
    assert "SECRET" not in f"{report}"
    files = [path for path in project.rglob("*") if path.is_file()]
    assert [path for path in files if b"SECRET" in path.read_bytes()] == []


def test_a_killed_stage_is_marked_by_the_next_one(store, project):
    assert run_stage("train", "kill")[0] == -9
    assert run_stage("download", DVC_EXP_NAME="other")[0] == 0
    runs = runs_of(store)
    assert runs["train"][0].info.status == "KILLED"
    assert {run.info.status for run in runs["pipeline"]} == {"KILLED", "FINISHED"}
    assert points_of(store, runs["train"][0]) == CURVE[:3]


def test_a_living_stage_is_no_orphan_though_the_clock_be_set(project, params, monkeypatch):
    boot_time = psutil.boot_time()
    with stage_run("train", params):
        assert shipping.end_orphans(project) == []
        monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_time - 3600)
        assert shipping.end_orphans(project) == []


def harm_the_note(journal):
    journal.path.with_suffix(".sent.json").write_text('{"store": "sql')


def harm_the_start(journal):
    _, *rest = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b'{"kind": "sta\n' + b"".join(rest))


def harm_a_line(journal):
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"step": 1', b'"stfp": 1'))


@pytest.mark.parametrize("harm", [harm_the_note, harm_the_start, harm_a_line])
def test_a_damaged_journal_holds_up_no_other(store, project, harm):
    run_stage("train", MLFLOW_TRACKING_URI=NOWHERE)
    (journal,) = journals_of(project / ".dayahead/journal/lofty-sail")
    harm(journal)
    run_stage("download", DVC_EXP_NAME="other", MLFLOW_TRACKING_URI=NOWHERE)
    assert sync_all(project).left == []
    runs = runs_of(store)
    assert runs["download"][0].info.status == "FINISHED"
    if harm != harm_the_start:
        lost = [point for point in CURVE if harm == harm_a_line and point[0] == 1]
        assert points_of(store, runs["train"][0]) == [p for p in CURVE if p not in lost]


def test_a_lost_note_costs_no_record_and_doubles_none(store, project):
    assert run_stage("train")[0] == 0
    (journal,) = journals_of(project / ".dayahead/journal/lofty-sail")
    harm_the_note(journal)
    assert sync_all(project).left == []
    (train,) = runs_of(store)["train"]
    assert points_of(store, train) == CURVE


def test_a_journal_begun_elsewhere_is_reported(project, monkeypatch):
    run_stage("train", MLFLOW_TRACKING_URI="sqlite:///other.db")
    (journal,) = journals_of(project / ".dayahead/journal/lofty-sail")
    journal.append("params", params={"late": "1"})
    report = sync_all(project)
    assert report.n_entries == 0
    assert report.left == [
        f"lofty-sail/train: begun in sqlite:///{project}/other.db; set MLFLOW_TRACKING_URI to it"
    ]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
    assert sync_all(project).n_entries == 1


@pytest.mark.parametrize("uri", [NOWHERE])
def test_a_replay_that_fails_says_so(project, monkeypatch, uri):
    run_stage("train", MLFLOW_TRACKING_URI=uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    report = sync_all(project)
    assert report.store == uri
    assert [line.split(":")[0] for line in report.left] == ["lofty-sail/train"]
