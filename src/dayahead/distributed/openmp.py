"""Makes waiting OpenMP threads spin while cores are free, and sleep while other work needs them."""

import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from threading import Event, Thread

import psutil
import torch

INTERVAL = 0.2
"""Seconds between two measurements of the cores."""
TOLERATED = 0.3
"""Number of our cores that others may use before spinning costs more than it saves."""
N_VALUES = 2**18
"""Size of a tensor that is large enough for torch to sum it with several threads."""


@cache
def watch_cores() -> None:
    """From now on, let waiting threads sleep while other work runs on this process's cores.

    In libgomp they spin for milliseconds. On a quiet machine this is a third faster. Next to one
    busy process, spinning takes the core from the thread that is waited for, and everything takes
    two to five times as long. Results do not depend on it.
    """
    over = Event()
    thread = Thread(target=_watch, args=(over,), name="cores", daemon=True)
    thread.start()
    atexit.register(_end, over, thread)


def _end(over: Event, thread: Thread) -> None:
    # A thread that is within torch while the interpreter ends would abort the process.
    over.set()
    thread.join()


def _watch(over: Event) -> None:
    with suppress(OSError, RuntimeError):  # out of files or threads: keep spinning
        _hold_while(_looks(over), idle_threads)


def _hold_while(looks: Iterable[bool], context: Callable[[], AbstractContextManager[None]]) -> None:
    for is_crowded, same in groupby(looks):
        with context() if is_crowded else nullcontext():
            for _ in same:
                pass


def _looks(over: Event) -> Iterator[bool]:
    """Yield at each measurement whether cores have been crowded since the last one."""
    now = CoreTimes.now()
    while not over.wait(INTERVAL):
        before, now = now, CoreTimes.now()
        yield now.is_crowded_since(before)


@dataclass(frozen=True)
class CoreTimes:
    """Busy times of cores up to a moment, in seconds."""

    time: float
    of_all: dict[int, float]
    """Busy time of all processes, by core."""
    own: float
    """Busy time of this process, over all cores."""

    @classmethod
    def now(cls) -> "CoreTimes":
        """Read the times of this moment."""
        of_all = {
            core: each.user + each.nice + each.system + each.irq + each.softirq + each.steal
            for core, each in enumerate(psutil.cpu_times(percpu=True))
        }
        return cls(time.monotonic(), of_all, time.process_time())

    def is_crowded_since(self, before: "CoreTimes") -> bool:
        """Whether others have used some of the cores that this process's threads need."""
        cores = os.sched_getaffinity(0) & self.of_all.keys() & before.of_all.keys()
        busy = sum(self.of_all[core] - before.of_all[core] for core in cores)
        others = (busy - (self.own - before.own)) / (self.time - before.time)
        return bool(cores) and others > len(cores) - torch.get_num_threads() + TOLERATED


@contextmanager
def idle_threads() -> Iterator[None]:
    """Keep additional OpenMP threads alive, so that there are more threads than cores.

    libgomp then lets a waiting thread sleep after 100 spins (see GOMP_SPINCOUNT in its manual).
    """
    over, n_threads = Event(), torch.get_num_threads()
    n_missing = (os.cpu_count() or 1) + 1 - n_threads
    # Each Python thread gets its own team of OpenMP threads, of which it is one itself.
    n_teams = -(-n_missing // (n_threads - 1)) if n_threads > 1 else 0
    started: list[Thread] = []
    try:
        for _ in range(n_teams):
            thread = Thread(target=_hold_team, args=(over,), daemon=True)
            thread.start()
            started.append(thread)
        yield
    finally:
        over.set()
        for thread in started:
            thread.join()


def _hold_team(over: Event) -> None:
    torch.ones(N_VALUES).sum()
    over.wait()
