"""The project that all tests disturb, trained once undisturbed for each number of processes."""

from contextlib import contextmanager

import pytest

from faults.harness import Project


@pytest.fixture(scope="session")
def _created(tmp_path_factory, real_data):
    return Project.create(tmp_path_factory.mktemp("faults"), real_data)


@pytest.fixture(scope="session")
def _reference(_created):
    return _created.reference()


@pytest.fixture
def project(_created, _reference):
    """A project with its windows, nothing trained."""
    _created.clear()
    return _created


@pytest.fixture
def reference(_reference):
    """The undisturbed run of one process."""
    return _reference


@pytest.fixture(scope="session")
def _reference_of_two(_created):
    with _created.changed("compute", processes=2):
        return _created.reference()


@pytest.fixture
def reference_of_two(project, _reference_of_two):
    """The undisturbed run of two processes, whose dropout differs; the test runs with two, too."""
    with project.changed("compute", processes=2):
        project.clear()
        yield _reference_of_two


@contextmanager
def sharded(project):
    """Let two processes shard the items of a network alone."""
    with (
        project.changed("model", architecture="gpt2"),
        project.changed("compute", processes=2, shard_items=True),
    ):
        yield


@pytest.fixture(scope="session")
def _sharded_reference(_created):
    with sharded(_created):
        return _created.reference()


@pytest.fixture
def sharded_reference(project, _sharded_reference):
    """The same of two processes that shard the items."""
    with sharded(project):
        project.clear()
        yield _sharded_reference
