"""Fixtures of the download tests: a store per test and a web server."""

from contextlib import ExitStack

import pytest

from dayahead.download import servers, transfer
from support.fetches import BODY, SEGMENT
from support.sources import Served, serving


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """A store of this test alone, small segments, and no pauses."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(transfer, "SEGMENT", SEGMENT)
    monkeypatch.setattr(transfer, "CHUNK", SEGMENT)
    monkeypatch.setattr(servers, "PAUSE", 0.0)


@pytest.fixture
def serve(own_store):
    """Start a web server that has BODY as log.csv.gz and behaves as the options say."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            serving(Served({"log.csv.gz": BODY}, **options))
        )
