"""Cores of a process, on machines that are written down as Linux writes them in /sys."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from dayahead.distributed.affinity import cores_near, numbers_in, slice_of

BUS = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xDC, pci_device_id=0)


@pytest.fixture
def machine(tmp_path):
    """Two sockets of four cores of two threads: core 0 is 0 and 8, core 1 is 1 and 9, ..."""
    for cpu in range(16):
        topology = tmp_path / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 8 // 4}\n")
        (topology / "core_id").write_text(f"{cpu % 4}\n")
    return tmp_path


@pytest.fixture
def gpu(monkeypatch, machine):
    """A GPU beside the second socket, of which this process may use three cores."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: BUS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5, 12})
    folder = machine / "bus" / "pci" / "devices" / "0000:dc:00.0"
    folder.mkdir(parents=True)
    return folder / "local_cpulist"


def test_slices_are_disjoint_equal_and_of_whole_cores(machine):
    assert [slice_of(range(16), place, 4, machine) for place in range(4)] == [
        [0, 1, 8, 9],
        [2, 3, 10, 11],
        [4, 5, 12, 13],
        [6, 7, 14, 15],
    ]


def test_slices_of_what_does_not_divide_are_equal_too(machine):
    parts = [slice_of(range(16), place, 3, machine) for place in range(3)]
    assert {len(part) for part in parts} == {5}
    assert len({core for part in parts for core in part}) == 15


def test_a_machine_that_tells_nothing_is_cut_by_number(tmp_path):
    assert [slice_of([2, 3, 6, 7], place, 2, tmp_path) for place in (0, 1)] == [[2, 3], [6, 7]]


def test_a_gpu_has_cores_beside_it(machine, gpu):
    gpu.write_text("4-7,12-15\n")
    assert cores_near(torch.device("cuda", 0), machine) == [4, 5, 12]


@pytest.mark.parametrize("beside", ["6-7\n", "\n", None])
def test_cores_that_may_not_be_used_are_none(machine, gpu, beside):
    if beside is not None:
        gpu.write_text(beside)
    assert cores_near(torch.device("cuda", 0), machine) == [0, 1, 4, 5, 12]


def test_the_cpu_is_near_to_all_of_its_cores():
    assert cores_near(torch.device("cpu")) == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("listed", "numbers"), [("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("5", {5}), ("\n", set())]
)
def test_lists_of_numbers(listed, numbers):
    assert numbers_in(listed) == numbers


BOUND = """
import os, threading
from dayahead.distributed.affinity import bind
begin, seen = threading.Event(), []
thread = threading.Thread(target=lambda: (begin.wait(), seen.append(os.sched_getaffinity(0))))
thread.start()
bind([max(os.sched_getaffinity(0))])
begin.set()
thread.join()
print(len(os.sched_getaffinity(0)), len(seen[0]))
"""


@pytest.mark.slow
def test_threads_that_run_already_are_bound_too():
    done = subprocess.run([sys.executable, "-c", BOUND], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
