"""Against a real MLflow server, which dies and comes back."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from dayahead.tracking.runs import stage_run
from dayahead.tracking.store import Store
from dayahead.tracking.sync import sync_all
from support.mlflow_servers import server
from support.tracked_stages import CURVE, has_points, points_of, runs_of, window
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def address(free_port, monkeypatch):
    address = f"http://127.0.0.1:{free_port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    return address


def has_files(store):
    runs = runs_of(store).get("train", [])
    return any(store.client.list_artifacts(train.info.run_id) for train in runs)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_that_dies_halfway(project, params, address, comes_back):
    (project / "ranks.txt").write_text("ranks")
    with ExitStack() as stage:
        with server(address, project):
            run = stage.enter_context(stage_run("train", params))
            run.log_window(window(0))
            wait_until(lambda: has_points(Store(project)), 90)
        start = time.time()
        for step in (1, 2, 3):
            run.log_window(window(step))
        run.log_artifact(project / "ranks.txt")
        assert time.time() - start < 1
        (project / "ranks.txt").unlink()
        if comes_back:
            with server(address, project):
                wait_until(lambda: has_files(Store(project)), 90)
    with server(address, project):
        report = sync_all()
        # A server that came back has all but the end, which was recorded after its second stop.
        assert report.failures == {}
        assert (report.uploaded["lofty-sail/train"] == 1) == comes_back
        store = Store(project)
        (train,) = runs_of(store)["train"]
        (parent,) = runs_of(store)["pipeline"]
        assert points_of(store, train) == points_of(store, parent) == CURVE
        assert train.info.status == parent.info.status == "FINISHED"
        (file,) = store.client.list_artifacts(train.info.run_id)
        assert file.path == "ranks.txt"


STAGE = """
from dayahead.config.params import load_params
from dayahead.tracking.runs import stage_run

with stage_run("train", load_params()) as run:
    run.log_metrics({"aod": 0.5})
"""


def test_a_password_in_the_address_is_printed_by_no_process(project, address):
    """The stage, its sender, the upload afterwards; with a server and without."""
    secret = {**os.environ, "MLFLOW_TRACKING_URI": address.replace("//", "//me:HUSH@")}
    commands = (
        [sys.executable, "-c", STAGE],
        [sys.executable, "-m", "dayahead", "track", "--sync"],
    )

    def output(command):
        done = subprocess.run(
            command, env=secret, capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout + done.stderr

    printed = [output(command) for command in commands]
    assert "does not answer" in printed[0]
    with server(address, project):
        printed += [output(command) for command in reversed(commands)]
        assert [run.info.status for run in runs_of(Store(project))["train"]] == ["FINISHED"]
    assert "HUSH" not in "".join(printed), printed
