"""Fixtures of all tests: real click logs, a free port."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dayahead.core.collector import collect_rarely, freeze_and_collect_rarely
from support.ports import reserved_port

# Half a million objects of imports would be collected again and again: a fifth of the tests' time.
collect_rarely()

# No deadline, because the first call into torch or Dask is slow; fixed examples.
settings.register_profile("dayahead", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("dayahead")


def pytest_collection_finish() -> None:
    freeze_and_collect_rarely()


def pytest_runtest_setup() -> None:
    """Let no test depend on what others of its process have drawn from torch before."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real click logs."""
    if "DAYAHEAD_DATA" not in os.environ:
        pytest.skip("DAYAHEAD_DATA is not set: no real click logs to test on")
    return Path(os.environ["DAYAHEAD_DATA"])


@pytest.fixture
def free_port() -> Iterator[str]:
    """A port that nothing listens on, and that no other process is given."""
    with reserved_port() as port:
        yield str(port)
