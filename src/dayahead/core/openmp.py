"""How long OpenMP's waiting threads spin before they sleep."""

import os
import statistics
import time
from pathlib import Path

NO_SPINS, MANY_SPINS = "0", "300000"
"""The latter are libgomp's own."""
N_SAMPLES, INTERVAL = 5, 0.005
STAT = Path("/proc/stat")


def limit_spinning(stat: Path = STAT) -> None:
    """On a machine that is busy with other work, have waiting threads sleep at once.

    libgomp has them spin for milliseconds: a third faster on a quiet machine; beside one busy
    neighbour it takes the core from the thread they wait for, and all take three times as long.
    It reads the variable once, when torch is loaded, and processes started from this one inherit
    it. Results do not depend on it. What the user has set stands.
    """
    is_set = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    if not is_set and stat.is_file():
        os.environ["GOMP_SPINCOUNT"] = NO_SPINS if _is_busy(stat) else MANY_SPINS


def _is_busy(stat: Path) -> bool:
    """Whether others run on some of the cores that this process may run on."""
    n_free = (os.cpu_count() or 1) - statistics.median(_n_others(stat) for _ in range(N_SAMPLES))
    return n_free < len(os.sched_getaffinity(0))


def _n_others(stat: Path) -> int:
    """Count the threads that run or want to, but this one."""
    time.sleep(INTERVAL)
    [running] = [line for line in stat.read_text().splitlines() if line.startswith("procs_running")]
    return int(running.split()[1]) - 1
