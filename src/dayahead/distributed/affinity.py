"""The cores that a process runs on: a share of its own, near its GPU.

Not torch.numa: it wants the program numactl, and binds what torchrun starts, but not what Slurm
and MPI do.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

SYS = Path("/sys")


def cores_near(device: torch.device, sys: Path = SYS) -> list[int]:
    """The cores this process may run on; of a GPU, those beside it, where the machine tells."""
    allowed = os.sched_getaffinity(0)
    beside = allowed
    if device.type == "cuda":
        bus: Any = torch.cuda.get_device_properties(device)
        name = f"{bus.pci_domain_id:04x}:{bus.pci_bus_id:02x}:{bus.pci_device_id:02x}.0"
        listed = sys / "bus" / "pci" / "devices" / name / "local_cpulist"
        beside = numbers_in(listed.read_text()) if listed.is_file() else allowed
    return sorted(allowed & beside or allowed)


def slice_of(cores: Iterable[int], place: int, n: int, sys: Path = SYS) -> list[int]:
    """One of `n` equal parts of `cores`; the two threads of a core stay together."""
    ordered = sorted(cores, key=lambda core: (*_core_of(core, sys), core))
    size = len(ordered) // n
    return sorted(ordered[place * size : (place + 1) * size])


def _core_of(cpu: int, sys: Path) -> tuple[int, int]:
    """Socket and physical core of what Linux counts as a CPU."""
    topology = sys / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
    if not topology.is_dir():
        return 0, cpu
    socket, core = ((topology / name).read_text() for name in ("physical_package_id", "core_id"))
    return int(socket), int(core)


def numbers_in(listed: str) -> set[int]:
    """The numbers of a list such as `0-3,8,10-11`."""
    ranges = [part.split("-") for part in listed.strip().split(",") if part]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def bind(cores: Iterable[int]) -> None:
    """Keep this process, and all threads it has so far, to these cores."""
    kept = set(cores)
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), kept)
        except ProcessLookupError:  # it has ended meanwhile
            continue
