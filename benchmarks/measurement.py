"""Time, peak memory, and a description of the machine."""

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import psutil

LIBRARIES = ("torch", "nvtabular", "dask", "pandas", "pyarrow")
INTERVAL = 0.1
"""Seconds between two samples of the memory in use."""
Work = Callable[[], object]
Name = TypeVar("Name")
TimedWork = TypeVar("TimedWork")


def machine() -> str:
    """Return the name of the CPU, the cores that this process may use, and the memory."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    memory = psutil.virtual_memory().total / 2**30
    return f"{(names or [platform.processor()])[0]}, {n_cores()} cores, {memory:.0f} GiB"


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def print_header() -> None:
    """Print the machine, the versions and the command."""
    libraries = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    print(
        f"{machine()}, load {os.getloadavg()[0]:.1f}; "
        f"Python {platform.python_version()}, {libraries}\n"
        f"python {' '.join(sys.argv)}",
        flush=True,
    )


def seconds(work: Work) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_in_turns(
    works: Mapping[Name, TimedWork], n_rounds: int, timer: Callable[[TimedWork], float]
) -> list[dict[Name, float]]:
    """Time each work once per round, so that a drift of the machine's speed affects all alike.

    Returns:
        What `timer` returned by name, for each round after one to warm up.
    """
    rounds = [{name: timer(work) for name, work in works.items()} for _ in range(n_rounds + 1)]
    return rounds[1:]


class Peak:
    """The largest memory use seen, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def gib(self) -> float:
        """In GiB."""
        return self.bytes / 2**30


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Sample the memory of this process and its descendants from a thread.

    This is the proportional set size, in which a page shared by three processes counts a third
    for each. Where the system does not report it, it is the resident set size, in which that page
    counts three times.
    """
    peak = Peak()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(INTERVAL):
            peak.bytes = max(peak.bytes, _memory_in_use())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def _memory_in_use() -> int:
    process = psutil.Process()
    return sum(map(_size, [process, *process.children(recursive=True)]))


def _size(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.Error:  # it has ended since
        return 0
    return int(getattr(memory, "pss", memory.rss))
