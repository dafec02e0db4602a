"""What a benchmark says of the machine it ran on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil

LIBRARIES = ("nvtabular", "dask", "pandas", "pyarrow", "polars")


def machine_facts() -> str:
    """Processor, cores, memory and versions, in one line."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory().total / 2**30
    libraries = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    return (
        f"{(names or [platform.processor()])[0]}, {cores} cores, {memory:.0f} GiB, load "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}, {libraries}"
    )
