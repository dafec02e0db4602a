"""OpenMP's waiting threads: they spin while the cores are free, and sleep beside other work."""

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
"""Seconds between two looks at the cores."""
TOLERATED = 0.3
"""Cores of ours that others may use before spinning costs more than it saves."""
N_VALUES = 2**18
"""Of a tensor whose sum torch divides among threads."""


@cache
def watch_cores() -> None:
    """From now on, have waiting threads sleep while other work runs on this process's cores.

    libgomp has them spin for milliseconds: a third faster on a quiet machine; beside one busy
    process it takes the core from the thread they wait for, and all take twice to five times as
    long. Results do not depend on it.
    """
    Thread(target=_watch, name="cores", daemon=True).start()


def _watch() -> None:
    with suppress(OSError, RuntimeError):  # no file or thread is left: the threads go on spinning
        _hold_while(_looks(), idle_threads)


def _hold_while(looks: Iterable[bool], context: Callable[[], AbstractContextManager[None]]) -> None:
    for is_crowded, same in groupby(looks):
        with context() if is_crowded else nullcontext():
            for _ in same:
                pass


def _looks() -> Iterator[bool]:
    """Whether cores have been crowded since the last look, look by look."""
    now = CoreTimes.now()
    while True:
        before = now
        time.sleep(INTERVAL)
        now = CoreTimes.now()
        yield now.is_crowded_since(before)


@dataclass(frozen=True)
class CoreTimes:
    """How long cores have been busy up to a moment, in seconds."""

    time: float
    of_all: dict[int, float]
    """Of all processes, by core."""
    own: float
    """Of this process, over all cores."""

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
    """Hold so many more OpenMP threads that there are more than cores.

    Then libgomp has a waiting thread sleep after 100 spins (its manual, GOMP_SPINCOUNT).
    """
    over, n_threads = Event(), torch.get_num_threads()
    n_missing = (os.cpu_count() or 1) + 1 - n_threads
    # A Python thread has OpenMP threads of its own, and is itself one of the usual number.
    n_teams = -(-n_missing // (n_threads - 1)) if n_threads > 1 else 0
    try:
        for _ in range(n_teams):
            Thread(target=_hold_team, args=(over,), daemon=True).start()
        yield
    finally:
        over.set()


def _hold_team(over: Event) -> None:
    torch.ones(N_VALUES).sum()
    over.wait()
