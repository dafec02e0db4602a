"""Waiting OpenMP threads spin while the cores are free, and sleep beside other work."""

import os
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest
import torch

from dayahead.distributed.openmp import CoreTimes, _hold_while

STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 100 20 30 4000 500 6 7 8 90 0
cpu1 0 0 0 9999 0 0 0 0 0 0
intr 1 2 3
"""
SPINS = """
import time, torch
from dayahead.distributed.openmp import idle_threads

torch.set_num_threads(2)

def cpu_seconds():
    begin = time.process_time()
    for _ in range(50):
        torch.ones(2**18).sum()
        time.sleep(0.003)
    return time.process_time() - begin

cpu_seconds()
print(cpu_seconds())
with idle_threads():
    print(cpu_seconds())
print(cpu_seconds())
"""


def test_time_without_work_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "stat").write_text(STAT)
    ticks = {
        core: seconds * os.sysconf("SC_CLK_TCK") for core, seconds in CoreTimes.now().of_all.items()
    }
    assert ticks == {0: pytest.approx(171), 1: 0.0}


@pytest.mark.parametrize(
    ("allowed", "n_threads", "busy", "own", "expected"),
    [
        ({0, 1}, 2, (1.0, 1.0, 0.0, 0.0), 2.0, False),  # all of it ours
        ({0, 1}, 2, (1.0, 1.0, 0.0, 0.0), 1.8, False),
        ({0, 1}, 2, (1.0, 1.0, 0.0, 0.0), 1.4, True),
        ({0, 1}, 2, (1.0, 0.2, 1.0, 1.0), 1.2, False),  # others, on other cores
        ({0, 1, 2, 3}, 2, (1.0, 1.0, 1.0, 1.0), 2.0, False),  # two cores are left for us
        ({0, 1, 2, 3}, 2, (1.0, 1.0, 1.0, 1.0), 1.6, True),
        ({0, 7}, 1, (1.0, 0.0, 0.0, 0.0), 1.0, False),  # a core that the system does not list
        ({7}, 2, (1.0, 1.0, 1.0, 1.0), 0.5, False),
    ],
)
def test_cores_are_crowded_where_others_use_ours(
    monkeypatch, allowed, n_threads, busy, own, expected
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    before = CoreTimes(time=10.0, of_all=dict.fromkeys(range(4), 5.0), own=3.0)
    of_all = {core: 5.0 + 2 * seconds for core, seconds in enumerate(busy)}
    now = CoreTimes(time=12.0, of_all=of_all, own=3.0 + 2 * own)
    assert now.is_crowded_since(before) == expected


def test_threads_are_held_as_long_as_cores_are_crowded():
    events = []

    def answers():
        for answer in [False, True, True, False, False, True]:
            events.append(answer)
            yield answer

    @contextmanager
    def recorded():
        events.append("held")
        yield
        events.append("released")

    _hold_while(answers(), recorded)
    assert events[:8] == [False, True, "held", True, False, "released", False, True]
    assert events[8:] == ["held", "released"]


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core libgomp spins little")
def test_waiting_threads_sleep_while_idle_ones_are_held():
    names = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", SPINS], env=environment, capture_output=True, text=True, check=True
    )
    before, held, after = map(float, done.stdout.split())
    assert held < before / 2
    assert held < after / 2


ENDING = """
import time, torch
from dayahead.distributed import openmp

def looks(over):
    while not over.is_set():
        yield True
        yield False

torch.set_num_threads(2)
openmp._looks = looks
openmp.watch_cores()
time.sleep(0.3)
"""
"""A process whose watcher starts and ends teams all the time, as it ends."""


@pytest.mark.long
def test_no_thread_is_within_torch_as_the_process_ends():
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", ENDING], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
