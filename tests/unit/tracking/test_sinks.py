"""Sinks beside MLflow: each gets every record once, whatever happens to it or to the others."""

import importlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dayahead.core.errors import ConfigError, TrackingError
from dayahead.tracking import sinks
from dayahead.tracking.outbox import outboxes
from dayahead.tracking.publication import record_publication
from dayahead.tracking.runs import stage_run
from dayahead.tracking.sinks import Progress, open_sink
from dayahead.tracking.sync import sync_all
from support.recording_sink import Recorder
from support.tiny_settings import tiny_params
from support.tracked_stages import CURVE, NOWHERE, points_of, publication, runs_of, window


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setitem(sinks.SINKS, "tensorboard", "support.recording_sink:Recorder")
    monkeypatch.setattr(Recorder, "entries", [])
    return Recorder


def params_for(*kinds):
    return tiny_params({"tracking": {"sinks": list(kinds), "experiment": "dayahead"}})


def run_train(params, folder):
    with stage_run("train", params) as run:
        for step in range(4):
            run.log_window(window(step))
        run.log_artifact(folder / "params.yaml")
        run.log_metrics({"aod": 0.25})


def test_a_sink_that_fails_leaves_the_others_whole(store, project, recorder, caplog, monkeypatch):
    monkeypatch.setattr(recorder, "is_down", True)
    run_train(params_for("tensorboard", "mlflow"), project)
    (train,) = runs_of(store)["train"]
    assert train.info.status == "FINISHED"
    assert points_of(store, train) == CURVE
    assert recorder.entries == []
    assert [line for line in caplog.messages if "does not answer" in line] == [
        line for line in caplog.messages if "recorder" in line
    ]
    assert len(caplog.messages) == 1
    assert "secret" not in caplog.text
    # Copies of files wait for the sink that lacks them.
    (outbox,) = outboxes()
    assert any(outbox.path.with_suffix(".files").iterdir())
    assert sync_all().failures == {"lofty-sail/train to tensorboard": "tcp://***@host is away"}
    monkeypatch.setattr(recorder, "is_down", False)
    assert sync_all().uploaded == {"lofty-sail/train": 8}
    assert not any(outbox.path.with_suffix(".files").iterdir())
    assert points_of(store, train) == CURVE


def test_every_sink_gets_each_record_once(store, project, recorder):
    run_train(params_for("mlflow", "tensorboard"), project)
    expected = ["start", *["window"] * 4, "artifact", "metrics", "end"]
    assert [entry["kind"] for entry in recorder.entries] == expected
    assert sync_all().uploaded == {}
    run_train(params_for("mlflow", "tensorboard"), project)  # again, with the same inputs
    again = ["start", "artifact", "metrics", "end"]
    assert [entry["kind"] for entry in recorder.entries] == expected + again
    assert points_of(store, runs_of(store)["train"][0]) == CURVE


def test_mlflow_that_is_away_does_not_hold_up_the_others(project, recorder, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    run_train(params_for("mlflow", "tensorboard"), project)
    assert len(recorder.entries) == 8
    report = sync_all()
    assert report.uploaded == {}
    assert [*report.failures] == ["lofty-sail/train"]


@pytest.mark.usefixtures("project")
def test_without_sinks_nothing_is_sent_and_all_is_kept(project):
    run_train(params_for(), project)
    (outbox,) = outboxes()
    assert len(outbox.entries("window")) == 4
    assert sync_all() == ([], {}, {})


def test_a_package_that_is_missing_is_one_warning(store, project, caplog, monkeypatch):
    monkeypatch.setitem(sinks.SINKS, "wandb", "no_such_package:Sink")
    run_train(params_for("wandb", "mlflow"), project)
    assert points_of(store, runs_of(store)["train"][0]) == CURVE
    (line,) = caplog.messages
    assert "wandb cannot be imported" in line
    assert "track --sync" in line
    assert "wandb cannot be imported" in sync_all().failures["wandb"]


def test_unknown_and_repeated_names_are_refused():
    with pytest.raises(ConfigError, match=r"sinks\.1.*'mlflow', 'tensorboard' or 'wandb'"):
        params_for("mlflow", "comet")
    with pytest.raises(ConfigError, match="mlflow, mlflow: name each tracker once"):
        params_for("mlflow", "mlflow")
    with pytest.raises(TrackingError, match="expected one of mlflow, tensorboard, wandb"):
        open_sink("comet")


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar of every run below a folder of TensorBoard."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found: dict[str, list[tuple[int, float]]] = {}
    for run in folder.iterdir():
        events = accumulators.EventAccumulator(str(run)).Reload()
        for tag in events.Tags()["scalars"]:
            found[tag] = [(each.step, each.value) for each in events.Scalars(tag)]
    return found


def damage_mark(outbox):
    Progress.path(outbox, "tensorboard").write_text("{")


def cut_file(outbox):
    (file,) = (outbox.path.parents[2] / "tensorboard").rglob("events.*")
    file.write_bytes(file.read_bytes()[:50])


def remove_files(outbox):
    shutil.rmtree(outbox.path.parents[2] / "tensorboard")


def half_an_event(outbox):
    (file,) = (outbox.path.parents[2] / "tensorboard").rglob("events.*")
    file.write_bytes(file.read_bytes() + b"half an event")


@pytest.mark.parametrize("damage", [damage_mark, cut_file, remove_files, half_an_event])
def test_tensorboard_has_each_point_once(project, damage):
    pytest.importorskip("tensorboard")
    run_train(params_for("tensorboard"), project)
    folder = project / ".dayahead/tensorboard"
    expected = {"by window/ndcg_at_20": CURVE, "over windows/aod": [(0, 0.25)]}
    assert scalars_of(folder) == expected
    (run,) = folder.iterdir()
    assert run.name.startswith("gpt2-clm d16 L1 seed 1- tiny ")
    (outbox,) = outboxes()
    damage(outbox)
    outbox.append("metrics", step=0, metrics={"late": 1.0})
    assert sync_all().failures == {}
    assert scalars_of(folder) == expected | {"over windows/late": [(0, 1.0)]}


def test_tensorboard_takes_the_decision_of_a_night(project):
    pytest.importorskip("tensorboard")
    record_publication(params_for("tensorboard"), publication(), project / "pyfunc.py")
    assert sync_all().failures == {}
    found = scalars_of(project / ".dayahead/tensorboard")
    assert found == {"over windows/champion_ndcg_at_20": [(0, 0.25)]}


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of an offline run's file: LevelDB's log format behind 7 bytes."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record, at = record + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def rows_of(part: Path) -> list[dict[str, str]]:
    """The rows of history of an offline run."""
    messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (file,) = part.glob("*.wandb")
    records = [messages.Record.FromString(data) for data in records_of(file.read_bytes())]
    return [
        {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]


def wandb_sink():
    pytest.importorskip("wandb")
    return importlib.import_module("dayahead.tracking.wandb_sink")


@pytest.mark.filterwarnings("ignore")
def test_wandb_that_cannot_upload_is_tried_again(project, monkeypatch):
    monkeypatch.setattr(
        wandb_sink(), "SYNC", ("sh", "-c", "echo trying; echo no login >&2; exit 1")
    )
    monkeypatch.setenv("WANDB_MODE", "online")
    run_train(params_for("wandb"), project)
    assert sync_all().failures == {"lofty-sail/train to wandb": "wandb sync: no login"}
    monkeypatch.setattr(wandb_sink(), "SYNC", ("true",))
    assert sync_all().uploaded == {"lofty-sail/train": 8}
    assert len([*(project / ".dayahead/wandb/lofty-sail").iterdir()]) == 1


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_each_row_once_offline(project, monkeypatch):
    pytest.importorskip("wandb")
    run_train(params_for("wandb"), project)
    folder = project / ".dayahead/wandb/lofty-sail"
    (part,) = folder.iterdir()
    rows = rows_of(part)
    assert [(row["window"], row["ndcg_at_20"]) for row in rows] == [
        ("0", "0"),
        ("1", "0.125"),
        ("2", "0.25"),
        ("3", "0.375"),
    ]
    # W&B's own program finds one run in it.
    command = [*wandb_sink().SYNC, "--dry-run", str(part)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Would sync 1 run(s)" in done.stdout + done.stderr
    # A mark that is lost writes no second part; W&B's own program uploads it where asked to.
    (outbox,) = outboxes()
    Progress.path(outbox, "wandb").unlink()
    uploaded = []
    monkeypatch.setattr("dayahead.tracking.wandb_sink._upload", uploaded.append)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert sync_all().failures == {}
    assert uploaded == [part] == [*folder.iterdir()]
