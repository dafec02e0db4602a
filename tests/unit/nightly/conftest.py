"""A project for pretended nights, whose pages have no chart."""

import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def _without_charts():
    """Draw none: a third of the time of a pretended night."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dayahead.nightly.page.curves", lambda *_, **__: "")
        yield
