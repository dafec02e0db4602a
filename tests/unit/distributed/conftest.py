"""The study of these tests, run to its end undisturbed."""

import pytest

from support.launched_study import run_study, write_host


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    """The study on one process."""
    folder = write_host(tmp_path_factory.mktemp("one"))
    run_study(folder, 1)
    return folder


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    """The study on two processes of one machine."""
    folder = write_host(tmp_path_factory.mktemp("two"))
    run_study(folder, 2)
    return folder
