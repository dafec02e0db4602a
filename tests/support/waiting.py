"""Waits for what another process or thread does."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], bool], seconds: float = 60, what: str = "") -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def wait_for_file(path: Path, seconds: float = 60) -> None:
    """Wait for a file or folder."""
    wait_until(path.exists, seconds, f"no {path}")
