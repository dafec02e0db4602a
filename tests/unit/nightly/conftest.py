"""A project for pretended nights."""

import pytest

from support.pretended_nights import after_nights


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def night(root):
    """The nights of four ordinary days have been run."""
    return after_nights(root, 4)
