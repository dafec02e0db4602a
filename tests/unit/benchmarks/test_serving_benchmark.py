"""The benchmark of the service: a service that says nothing useful does not outlive it."""

import sys
import time

import pytest

from serving import running

LIVES_ON = "import time; print({!r}, flush=True); time.sleep(20)"


def test_a_service_without_an_address_is_ended():
    start = time.monotonic()
    service = running([sys.executable, "-c", LIVES_ON.format("loading")])
    with pytest.raises(SystemExit, match="the service did not start"), service:
        pass
    assert time.monotonic() - start < 15


def test_a_service_is_ended_after_the_block():
    start = time.monotonic()
    with running([sys.executable, "-c", LIVES_ON.format("http://127.0.0.1:8123")]) as port:
        assert port == 8123
    assert time.monotonic() - start < 15
