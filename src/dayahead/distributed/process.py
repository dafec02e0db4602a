"""One process of a run: its rank, its collectives, and its threads, cores and memory."""

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from dayahead.config.machine import ComputeConfig
from dayahead.core.phases import phase
from dayahead.distributed.collectives import Collectives
from dayahead.distributed.openmp import watch_cores

T = TypeVar("T")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, KEPT_BYTES_LARGE = 2**30, 2**26
"""Bytes of the largest tensor whose pages malloc keeps when it is freed: in general, and where
memory is short, because items are sharded or windows streamed."""
SYS = Path("/sys")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rank:
    """Rank of a process in a run: it takes every `world_size`-th row, from row `index` on."""

    index: int
    world_size: int


@dataclass(frozen=True)
class Process:
    """This process among all of a run."""

    rank: Rank
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank.index == 0

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the device has instructions for bfloat16 products, not just the type."""
        if self.device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))

    def uses_bfloat16(self, precision: str) -> bool:
        """Whether the matrix products of a fit with this `training.precision` are bfloat16."""
        return self.multiplies_bfloat16 if precision == "auto" else precision == "bfloat16"

    def all_reduce(self, values: Tensor) -> Tensor:
        """Sum `values` over all processes, in place."""
        if self.rank.world_size > 1:
            with phase("collectives"):
                dist.all_reduce(values)
        return values

    def copy_from_main(self, values: Tensor) -> None:
        """Replace `values` by those of rank 0, in place; there are several processes."""
        with phase("collectives"):
            dist.broadcast(values, src=0)

    def broadcast(self, value: T) -> T:
        """Return rank 0's value; the other ranks' values are ignored."""
        if self.rank.world_size == 1:
            return value
        values: list[Any] = [value if self.is_main else None]
        with phase("collectives"):
            dist.broadcast_object_list(values, src=0)
        return cast("T", values[0])

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank."""
        values: list[Any] = [value] * self.rank.world_size
        if self.rank.world_size > 1:
            with phase("collectives"):
                dist.all_gather_object(values, value)
        return values

    def in_turns(
        self, own: Iterator[Sequence[Tensor]], sizes: Sequence[int]
    ) -> Iterator[Sequence[Tensor]]:
        """Yield all results on every process; rank r computes r, r + world size, ...

        A collective for each turn, so that no process holds more than one turn's results.

        Args:
            own: this process's results, of some tensors each.
            sizes: rows of every result; a multiple of the world size in number.
        """
        world_size = self.rank.world_size
        if world_size == 1:
            yield from own
            return
        collectives = Collectives()
        for turn in range(0, len(sizes), world_size):
            of_turn = [*sizes[turn : turn + world_size]]
            found = []
            for rows in next(own):
                with phase("collectives"):
                    every, _ = collectives.all_gather(rows.to(self.device), of_turn)
                found.append(torch.split(every.cpu(), of_turn))
            yield from zip(*found, strict=True)


ALONE = Process(Rank(0, 1), torch.device("cpu"))
"""The only process, on the CPU."""


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device, without waiting for the GPU."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def keep_freed(n_bytes: int) -> None:
    """Let malloc keep the pages of freed tensors of at most `n_bytes`, for the next ones.

    Every step frees and allocates the same large tensors. If glibc returns their pages in between,
    page faults cost a sixth of a CPU step. If it keeps them, fragmentation can take four times the
    memory: a sharded table of a million items, in chunks.
    """
    if mallopt := getattr(CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, n_bytes)
        mallopt(M_TRIM_THRESHOLD, n_bytes)


def set_up_process(device: torch.device, n_threads: int, kept_bytes: int = KEPT_BYTES) -> None:
    """Set this process's threads, memory allocator, and CPU's or GPU's products."""
    torch.set_num_threads(n_threads)
    keep_freed(kept_bytes)
    if device.type == "cpu":
        use_onednn()
        watch_cores()
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # torch allows TF32 by default for recurrent networks and convolutions, not for products.
        torch.backends.cudnn.allow_tf32 = False


def use_onednn() -> None:
    """Multiply float32 matrices with oneDNN instead of MKL, on CPUs with AVX-512 but without AMX.

    MKL uses AVX-512 on Intel CPUs only; on AMD CPUs, oneDNN is twice as fast. torch calls oneDNN
    only if bfloat16 is permitted, which oneDNN uses on CPUs with AMX; on others its products stay
    float32.
    """
    has = torch.cpu.get_capabilities()
    if has.get("avx512_f") and not has.get("amx_tile"):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]


def divide_cores(process: Process, compute: ComputeConfig) -> None:
    """Set up each process, and divide a machine's cores among those that may run on the same."""
    cores = allowed_cores(process.device)
    here = (socket.gethostname(), cores)
    if process.device.type == "cuda":
        torch.cuda.set_device(process.device)  # NCCL gathers objects through the current device
    peers = [rank for rank, other in enumerate(process.all_gather(here)) if other == here]
    n_cores = len(cores) // len(peers)
    n_threads = max(1, n_cores) if compute.threads == "auto" else compute.threads
    if n_threads > len(cores):
        _log.warning(
            f"process {process.rank.index} may run on {len(cores)} cores, but compute.threads is "
            f"{n_threads}; see --bind-to of mpirun, --cpus-per-task of srun"
        )
    if n_cores >= n_threads:
        bind_threads(core_slice(cores, peers.index(process.rank.index), len(peers)))
    kept_bytes = KEPT_BYTES_LARGE if compute.shard_items else KEPT_BYTES
    set_up_process(process.device, n_threads, kept_bytes)


# Not torch.numa: it supports GPUs only, needs the program numactl, and binds processes started by
# torchrun, but not those of mpirun and srun.
def allowed_cores(device: torch.device, sys: Path = SYS) -> list[int]:
    """Return the cores this process may run on; for a GPU those of its NUMA node, if known."""
    allowed = os.sched_getaffinity(0)
    near = allowed
    if device.type == "cuda":
        gpu: Any = torch.cuda.get_device_properties(device)
        bus = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
        listed = sys / "bus" / "pci" / "devices" / bus / "local_cpulist"
        near = parse_ranges(listed.read_text()) if listed.is_file() else allowed
    return sorted(allowed & near or allowed)


def core_slice(cores: Iterable[int], index: int, n: int, sys: Path = SYS) -> list[int]:
    """Return slice `index` of `n` equal ones; hyper-threads of a physical core stay together."""

    def package_core_cpu(cpu: int) -> tuple[int, int, int]:
        topology = sys / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        if not topology.is_dir():
            return 0, cpu, cpu
        package, core = (topology / name for name in ("physical_package_id", "core_id"))
        return int(package.read_text()), int(core.read_text()), cpu

    ordered = sorted(cores, key=package_core_cpu)
    size = len(ordered) // n
    return sorted(ordered[index * size : (index + 1) * size])


def parse_ranges(text: str) -> set[int]:
    """Parse a list such as `0-3,8,10-11`."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def bind_threads(cores: Iterable[int]) -> None:
    """Bind this process, and all of its running threads, to these cores."""
    bound = set(cores)
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), bound)
        except ProcessLookupError:  # the thread has just ended
            continue
