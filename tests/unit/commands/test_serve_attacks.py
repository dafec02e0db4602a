"""Other clients are answered within a second, whatever one client does."""

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import attacks
from support.serve_processes import serving
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder

SECONDS = 6
MOST_BYTES = 600 * 2**20
"""Of memory that the attacks add, one after another."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service's process and port; its catalogue has a thousand items."""
    folder = tmp_path_factory.mktemp("study")
    days = markov_days(n_days=2, sessions_per_day=1_000, n_items=1_000)
    windows = write_window_folder(folder / "windows", days)
    train_study(windows, folder, {"model": {"architecture": "gpt2"}})
    with serving("--models", folder / "models") as (process, port, _):
        yield process, port


@pytest.fixture(scope="module")
def bytes_before(service):
    """Of the service's memory before all attacks."""
    process, port = service
    asyncio.run(attacks.latencies(port, 1))
    return psutil.Process(process.pid).memory_info().rss


@pytest.mark.slow
@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_others_are_answered_within_a_second(service, bytes_before, name):
    process, port = service
    command = [sys.executable, Path(attacks.__file__), str(port), name, str(SECONDS + 1)]
    with subprocess.Popen(command) as attack:
        found = sorted(asyncio.run(attacks.latencies(port, SECONDS)))
        assert attack.wait(30) == 0
    assert found[round(0.99 * (len(found) - 1))] < 1, found[-5:]
    assert psutil.Process(process.pid).memory_info().rss - bytes_before < MOST_BYTES
    assert asyncio.run(attacks.latencies(port, 0.1))[0] < 1
