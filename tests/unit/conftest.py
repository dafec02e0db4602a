"""Fixtures of the unit tests: preprocessing small logs; torch on one thread."""

import itertools

import dask
import pytest
import torch
from distributed import Client, LocalCluster

from dayahead.preprocess.stage import preprocess
from dayahead.windows.folder import WindowFolder
from support.builders import machine_config, preprocess_config, window_config, write_log

# Tiny tensors gain nothing from a second thread.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dask_thread():
    """Address of a Dask cluster in this process, as for small logs: no task is sent away."""
    # However much memory all other tests leave to this process, tasks are not paused.
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "memory_limit": 0}
    with LocalCluster(**options, dashboard_address=":0") as cluster, Client(cluster) as client:
        yield client.scheduler.address


@pytest.fixture
def run(tmp_path, dask_thread, monkeypatch):
    """Preprocess a table of events (or several, a source file each); open what was written.

    Runs share a cache only where they name its project.
    """
    numbers = itertools.count()

    def run(log, dataset, *, parts=1, log_end="2026-02-01", project=None, rebuild=False,
            fit_windows=1, scheduler=dask_thread, **window):  # fmt: skip
        root = tmp_path / str(next(numbers))
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / project if project else root / "project"))
        write_log(root / "raw", log, parts=parts, log_end=log_end)
        config = preprocess_config(fit_windows=fit_windows, rebuild=rebuild)
        window = window_config(**window)
        with dask.config.set(scheduler_address=scheduler):
            preprocess(root / "raw", root / "windows", dataset, window, config, machine_config())
        return WindowFolder(root / "windows")

    return run
