"""Fixtures of all tests: real click logs, a Dask cluster in a process of its own, a free port."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from hypothesis import settings

# No deadline, because the first call into torch or Dask is slow; fixed examples.
settings.register_profile("dayahead", deadline=None, derandomize=True)
settings.load_profile("dayahead")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real click logs."""
    if "DAYAHEAD_DATA" not in os.environ:
        pytest.skip("DAYAHEAD_DATA is not set: no real click logs to test on")
    return Path(os.environ["DAYAHEAD_DATA"])


@pytest.fixture(scope="session")
def dask_address() -> Iterator[str]:
    """Address of a Dask cluster with one worker process, started once for all tests."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client.scheduler.address


@pytest.fixture
def free_port() -> str:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])
