"""Collectives of a single process, and the cores of each, on machines written down as in /sys."""

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import (
    Process,
    Rank,
    allowed_cores,
    core_slice,
    set_up_process,
    use_onednn,
)
from support.tiny_settings import compute_config
from support.worker_studies import write_cores, write_turns

GPU = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xDC, pci_device_id=0)


@pytest.fixture
def machine(tmp_path):
    """Two sockets of four cores of two threads: core 0 is CPUs 0 and 8, core 1 is 1 and 9, ..."""
    for cpu in range(16):
        topology = tmp_path / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 8 // 4}\n")
        (topology / "core_id").write_text(f"{cpu % 4}\n")
    return tmp_path


@pytest.fixture
def gpu(monkeypatch, machine):
    """The list of CPUs near a GPU, on a machine where this process may use five."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: GPU)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5, 12})
    folder = machine / "bus" / "pci" / "devices" / "0000:dc:00.0"
    folder.mkdir(parents=True)
    return folder / "local_cpulist"


def test_collectives_of_a_single_process_return_its_own_values():
    alone = Process(Rank(0, 1), torch.device("cpu"))
    assert alone.all_reduce(torch.tensor([1, 2])).tolist() == [1, 2]
    assert alone.broadcast("a") == "a"
    assert alone.all_gather("a") == ["a"]


def test_core_slices_are_disjoint_and_equal_and_keep_hyperthreads_together(machine):
    assert [core_slice(range(16), index, 4, machine) for index in range(4)] == [
        [0, 1, 8, 9],
        [2, 3, 10, 11],
        [4, 5, 12, 13],
        [6, 7, 14, 15],
    ]
    uneven = [core_slice(range(16), index, 3, machine) for index in range(3)]
    assert {len(cores) for cores in uneven} == {5}
    assert len({core for cores in uneven for core in cores}) == 15


def test_cores_of_unknown_topology_are_divided_by_number(tmp_path):
    slices = [core_slice([2, 3, 6, 7], index, 2, tmp_path) for index in (0, 1)]
    assert slices == [[2, 3], [6, 7]]


@pytest.mark.parametrize(
    ("near", "cores"),
    [
        ("4-7,12-15\n", [4, 5, 12]),
        ("0,4-5\n", [0, 4, 5]),
        ("6-7\n", [0, 1, 4, 5, 12]),  # none of them allowed
        ("\n", [0, 1, 4, 5, 12]),
        (None, [0, 1, 4, 5, 12]),
    ],
)
def test_a_gpu_s_process_uses_allowed_cores_near_it(machine, gpu, near, cores):
    if near is not None:
        gpu.write_text(near)
    assert allowed_cores(torch.device("cuda", 0), machine) == cores


def test_a_cpu_process_uses_all_allowed_cores():
    assert allowed_cores(torch.device("cpu")) == sorted(os.sched_getaffinity(0))


BIND = """
import os, threading
from dayahead.distributed.process import bind_threads
begin, seen = threading.Event(), []
thread = threading.Thread(target=lambda: (begin.wait(), seen.append(os.sched_getaffinity(0))))
thread.start()
bind_threads([max(os.sched_getaffinity(0))])
begin.set()
thread.join()
print(len(os.sched_getaffinity(0)), len(seen[0]))
"""


@pytest.mark.slow
def test_running_threads_are_bound_too():
    done = subprocess.run([sys.executable, "-c", BIND], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "is_divided"), [("auto", True), (99, False)])
def test_processes_divide_the_cores_of_their_machine(tmp_path, threads, is_divided):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two cores")
    run_processes(write_cores, compute_config(processes=2, threads=threads), tmp_path)
    first, second = (read_json(tmp_path / f"{rank}.json") for rank in (0, 1))
    if is_divided:
        assert set(first["cores"]) & set(second["cores"]) == set()
        assert len(first["cores"]) == len(second["cores"]) == len(allowed) // 2
    else:
        assert first["cores"] == second["cores"] == allowed
    n_threads = len(allowed) // 2 if threads == "auto" else threads
    assert first["threads"] == second["threads"] == n_threads


def test_a_gpu_computes_float32_products_in_float32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    set_up_process(torch.device("cuda", 0), torch.get_num_threads())
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"avx512_f": True, "amx_tile": False}, "bf16"),
        ({"avx512_f": True, "amx_tile": True}, "none"),
        ({"avx512_f": False}, "none"),
        ({}, "none"),
    ],
)
def test_onednn_multiplies_where_it_computes_in_float32(monkeypatch, capabilities, precision):
    products = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    products.fp32_precision = "none"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    use_onednn()
    found = products.fp32_precision
    products.fp32_precision = before
    assert found == precision


def test_a_cpu_computes_float32_products_in_float32():
    """Rounding to bfloat16 would be 4,000 times as far off."""
    set_up_process(torch.device("cpu"), torch.get_num_threads())
    rng = torch.Generator().manual_seed(1)
    states, table = (torch.randn(n, 128, generator=rng) for n in (64, 512))
    exact = states.double() @ table.double().T
    assert (states @ table.T - exact).abs().max() <= 1e-5 * exact.abs().max()


GROWTH = """
import torch
from dayahead.distributed.process import set_up_process

def in_use():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

set_up_process(torch.device("cpu"), 1)
states = torch.ones(64, 16)
for n_items in range(1000, 1600):
    states @ torch.ones(n_items, 16).T
    if n_items == 1200:
        before = in_use()
print(in_use() - before)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_shapes_of_products():
    """400 more shapes took 200 MB."""
    command = [sys.executable, "-c", GROWTH]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 60


HUGE = """
import importlib, sys
importlib.import_module(sys.argv[1])
import torch
values = torch.ones(2**24)
[kib] = [line.split()[1] for line in open("/proc/self/smaps_rollup") if "AnonHuge" in line]
print(kib)
"""
SUPPORT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.long
@pytest.mark.skipif(
    not SUPPORT.is_file() or "[never]" in SUPPORT.read_text(), reason="Linux has no huge pages here"
)
@pytest.mark.parametrize("module", ["dayahead.train.stage", "dayahead.serve.recommender"])
def test_large_tensors_lie_in_huge_pages_unless_the_user_forbids_it(module):
    """A tensor of 64 MiB, in a process of its own: torch reads the variable once."""
    command = [sys.executable, "-c", HUGE, module]
    others = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    found = [
        int(subprocess.check_output(command, env=others | chosen))
        for chosen in ({}, {"THP_MEM_ALLOC_ENABLE": "0"})
    ]
    assert found[0] >= 60 << 10
    # "always": also without being asked.
    assert found[1] < 60 << 10 or "[always]" in SUPPORT.read_text()


TURNS = {"equal": [2, 2, 1, 1], "odd": [1, 1, 1, 0], "empty": [0, 0, 0, 0]}
"""Rows of each result, by the name of the list of results."""


def results_of(sizes):
    rows = torch.arange(sum(sizes)).split(sizes)
    return [[part, part[:, None] / 2, part % 2 == 1] for part in rows]


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    """The folder in which two processes wrote what they got of each list of results."""
    folder = tmp_path_factory.mktemp("turns")
    for name, sizes in TURNS.items():
        torch.save(results_of(sizes), folder / f"{name}.pt")
    run_processes(write_turns, compute_config(processes=2), folder, TURNS)
    return folder


@pytest.mark.parametrize("name", TURNS)
def test_results_come_in_order_whichever_process_computes_them(of_two_processes, name):
    sizes = TURNS[name]
    single = Process(Rank(0, 1), torch.device("cpu"))
    alone = [*single.in_turns(iter(results_of(sizes)), sizes)]
    for rank in (0, 1):
        found = torch.load(of_two_processes / f"{name}-{rank}.pt", weights_only=True)
        assert len(found) == len(alone)
        for one, other in zip(chain(*alone), chain(*found), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
