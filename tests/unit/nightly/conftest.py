"""A project for pretended nights, whose pages have no chart."""

import pytest

from support.pretended_nights import after_nights, without_charts


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def night(root):
    """The nights of four ordinary days have been run."""
    return after_nights(root, 4)


@pytest.fixture(scope="module", autouse=True)
def _without_charts():
    with pytest.MonkeyPatch.context() as patch:
        without_charts(patch)
        yield
