"""Fixtures of the download tests: a cache per test and a web server."""

from contextlib import ExitStack

import pytest

from dayahead.download import transfer
from support.fetches import BODY, SEGMENT
from support.sources import Served, serving


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """A cache of this test alone, small segments, and no pauses."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer, "SEGMENT", SEGMENT)
    monkeypatch.setattr(transfer, "CHUNK", SEGMENT)
    monkeypatch.setattr(transfer, "PAUSE", 0.0)


@pytest.fixture
def serve():
    """Start a web server that has BODY as log.csv.gz and behaves as the options say."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            serving(Served({"log.csv.gz": BODY}, **options))
        )
