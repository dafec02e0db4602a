"""Peak memory of a process and all it started."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

INTERVAL = 0.1
"""Seconds between two looks."""


class Peak:
    """The largest sum seen, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def gib(self) -> float:
        """In GiB."""
        return self.bytes / 2**30


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Watch this process and its descendants from a thread.

    Counted is the proportional set size, where a page shared by three counts a third in each;
    where the system does not tell it, the resident set size, which counts it three times.
    """
    peak = Peak()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(INTERVAL):
            peak.bytes = max(peak.bytes, _held())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def _held() -> int:
    process = psutil.Process()
    return sum(map(_size, [process, *process.children(recursive=True)]))


def _size(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.Error:  # it has ended since
        return 0
    return int(getattr(memory, "pss", memory.rss))
