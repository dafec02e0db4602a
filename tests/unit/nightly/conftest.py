"""A project for pretended nights, whose pages have no chart."""

import pytest

from support.pretended_nights import without_charts


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def _without_charts():
    with pytest.MonkeyPatch.context() as patch:
        without_charts(patch)
        yield
