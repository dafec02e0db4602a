"""What the tests of preprocessing and of fetching share."""

import itertools
from contextlib import ExitStack

import pytest
from distributed import Client, LocalCluster

from builders import preprocess_config, window_config, write_log
from dayahead.data import servers, transfer
from dayahead.data.preprocessing import preprocess
from dayahead.data.windows import WindowStore
from fetches import BODY, SEGMENT
from sources import Served, serving


@pytest.fixture(scope="session")
def dask_thread():
    """Address of a Dask cluster in this process, as small logs have it: no task is sent away.

    A single thread, for numpy.load parses a file's head, and before 3.11.8 Python can fail where
    two threads parse at once.
    """
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**options, dashboard_address=":0") as cluster, Client(cluster) as client:
        yield client.scheduler.address


@pytest.fixture
def run(tmp_path, dask_thread, monkeypatch):
    """Preprocess a table of events (or several, a source file each); open what was written.

    Runs share a store only where they name one.
    """
    numbers = itertools.count()

    def run(log, dataset, *, parts=1, log_end="2026-02-01", store=None, rebuild=False,
            fit_windows=1, **window):  # fmt: skip
        root = tmp_path / str(next(numbers))
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / store if store else root / "project"))
        write_log(root / "raw", log, parts=parts, log_end=log_end)
        config = preprocess_config(scheduler=dask_thread, fit_windows=fit_windows, rebuild=rebuild)
        preprocess(root / "raw", root / "windows", dataset, window_config(**window), config)
        return WindowStore(root / "windows")

    return run


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """A store of this test alone, small segments, and no pauses."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer, "SEGMENT", SEGMENT)
    monkeypatch.setattr(transfer, "CHUNK", SEGMENT)
    monkeypatch.setattr(servers, "PAUSE", 0.0)


@pytest.fixture
def serve(own_store):
    """Start a web server that has BODY as log.csv.gz and behaves as the options say."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            serving(Served({"log.csv.gz": BODY}, **options))
        )
