"""Sessions per second in training beside 0, 1 and 2 busy neighbours, by threads and spinning.

A waiting OpenMP thread spins before it sleeps: on a quiet machine this saves wake-ups, beside other
work it takes a core that others need. So with `auto` it spins on free cores alone; the second row
never spins. Each row is one setting, in processes of their own that take turns; a neighbour is a
Python loop that never waits. Figures are medians of rounds.

Command: python benchmarks/busy_machine.py
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tabulate import tabulate

from dayahead.distributed.launch import main_process
from dayahead.distributed.process import Process
from measurement import print_header, seconds
from throughput import N_SESSIONS, build_work
from workload import default_params

SETTINGS = {
    "auto": {},
    "auto, no spinning": {"GOMP_SPINCOUNT": "0"},
    "1 thread": {"THREADS": "1"},
}
NEIGHBOURS = (0, 1, 2)
ROUNDS = 5


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Keep n processes busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measured(environment: dict[str, str]) -> float:
    """Return the sessions per second of a process with these variables."""
    command = [sys.executable, "-W", "ignore", __file__, "--worker"]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def work(process: Process) -> None:
    """Print the sessions per second of an epoch, after one to warm up."""
    training = build_work(process, default_params())["training"]
    training()
    print(N_SESSIONS / seconds(training))


def main() -> None:
    """Print a row per setting."""
    print_header()
    rows = {name: [name] for name in SETTINGS}
    for n in NEIGHBOURS:
        with busy(n):
            rounds = [
                {name: measured(variables) for name, variables in SETTINGS.items()}
                for _ in range(ROUNDS)
            ]
        for name, row in rows.items():
            row.append(f"{statistics.median(each[name] for each in rounds):,.0f}")
    print(tabulate(rows.values(), ["threads", *(f"{n} neighbours" for n in NEIGHBOURS)], "github"))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        compute = default_params().compute
        threads = os.environ.get("THREADS")
        work(main_process(replace(compute, threads=int(threads)) if threads else compute, 1))
    else:
        main()
