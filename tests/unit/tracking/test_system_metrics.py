import time

import pytest

from dayahead.tracking import system_metrics
from dayahead.tracking.runs import stage_run
from support.tracked_stages import points_of, runs_of
from support.waiting import wait_until

CPU = "system/cpu_utilization_percentage"


@pytest.fixture
def fast(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setattr(system_metrics, "SECONDS", 0.02)


@pytest.mark.long
@pytest.mark.usefixtures("fast")
def test_the_use_of_the_machine_is_a_metric_of_the_stage(store, params):
    for n in (3, 6):  # the stage is restarted
        with stage_run("train", params) as run:
            wait_until(lambda: len(run.outbox.entries("system")) >= n)  # noqa: B023
    runs = runs_of(store)
    (train,), (parent,) = runs["train"], runs["pipeline"]
    points = points_of(store, train, CPU)
    assert [step for step, _ in points] == list(range(len(points)))
    assert len(points) == len(run.outbox.entries("system")) >= 6
    assert all(0 <= value <= 100 for _, value in points)
    assert train.data.metrics["system/system_memory_usage_megabytes"] > 0
    assert not any(name.startswith("system/") for name in parent.data.metrics)


def test_it_can_be_turned_off(project, params, monkeypatch):
    monkeypatch.setattr(system_metrics, "SECONDS", 0.01)
    with stage_run("train", params) as run:
        time.sleep(0.1)
    assert run.outbox.entries("system") == []


@pytest.mark.usefixtures("fast")
def test_a_machine_that_cannot_be_read_stops_no_stage(params, monkeypatch, caplog):
    def failing(_):
        raise OSError("no /proc")

    monkeypatch.setattr(system_metrics.CPUMonitor, "collect_metrics", failing)
    with stage_run("train", params) as run:
        wait_until(lambda: "the use of the machine is not recorded" in caplog.text)
    assert [entry["status"] for entry in run.outbox.entries("end")] == ["FINISHED"]
