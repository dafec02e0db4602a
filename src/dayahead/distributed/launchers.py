"""Where this process stands among those that a launcher started, on this machine and others."""

import os
import re
import shlex
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from dayahead.core.errors import ConfigError

LAUNCH = "DAYAHEAD_LAUNCH"
"""The launcher that a stage becomes: the words before the command that each process runs."""
FIRST_PORT, N_PORTS = 61_440, 4_096
"""Where processes meet that are told of no port: above those that Linux hands out by itself."""


class _Names(NamedTuple):
    """Of the variables that tell a launcher's processes apart."""

    launcher: str
    rank: str
    world: str
    local_rank: str
    job: tuple[str, ...]
    """Of which a port is made."""


_TORCHRUN = _Names("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", ())
_OPEN_MPI = _Names(
    "mpirun",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    ("PMIX_NAMESPACE",),
)
_SLURM = _Names(
    "srun",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
_LOCAL_WORLD = "OMPI_COMM_WORLD_LOCAL_SIZE"


@dataclass(frozen=True)
class LaunchInfo:
    """This process among those that a launcher started."""

    launcher: str
    rank: int
    world: int
    local_rank: int
    """Among those on this machine."""
    address: str
    """Of the machine of rank 0."""
    port: int


def launch_info(environ: Mapping[str, str]) -> LaunchInfo | None:
    """What the environment says of a launcher; None where there is none.

    torchrun (or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by whoever), Open MPI's mpirun
    and Slurm's srun; an inner one before an outer one. The script of a Slurm job is no rank, though
    it has SLURM_PROCID, and nor is a step of a single task: Slurm starts everything in steps.

    Raises:
        ConfigError: a variable is missing or cannot be.
    """
    for names in (_TORCHRUN, _OPEN_MPI):
        if names.rank in environ or names.world in environ:
            return _place(names, environ)
    if environ.get(_SLURM.world, "1") != "1":
        return _place(_SLURM, environ)
    return None


def is_secondary_process(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started this process beside a main one, which writes and reports."""
    place = launch_info(environ)
    return place is not None and place.rank > 0


def exec_launcher(environ: Mapping[str, str]) -> None:
    """Become the launcher that DAYAHEAD_LAUNCH names, which runs this script in every process.

    Does not return, unless no launcher is named, or one has started this process.

    Args:
        environ: what the launcher gets to see; it will not find its own name there.

    Raises:
        ConfigError: there is no such program.
    """
    words = shlex.split(environ.get(LAUNCH, ""))
    if words and launch_info(environ) is None:
        _become(words, {name: value for name, value in environ.items() if name != LAUNCH})


def _become(words: list[str], environ: dict[str, str]) -> NoReturn:
    is_torchrun = Path(words[0]).name == "torchrun"  # which calls Python itself
    command = [*words, *([] if is_torchrun else [sys.executable]), *sys.argv]
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 the user's own words
    except FileNotFoundError:
        raise ConfigError(
            f"{LAUNCH}: there is no program {words[0]} here; name one, or unset {LAUNCH}"
        ) from None


def _place(names: _Names, environ: Mapping[str, str]) -> LaunchInfo:
    rank = _number(names, names.rank, environ)
    world = _number(names, names.world, environ)
    if rank >= world:
        raise ConfigError(
            f"environment: {names.rank} is {rank}, counted from 0, and {names.world} only {world}"
        )
    # Where it is not told, as by Kubernetes, there is one process on each machine.
    is_told = names.local_rank in environ
    local_rank = _number(names, names.local_rank, environ) if is_told else 0
    address, port = ("", 0) if world == 1 else (_address(names, environ), _port(names, environ))
    return LaunchInfo(names.launcher, rank, world, local_rank, address, port)


def _number(names: _Names, name: str, environ: Mapping[str, str]) -> int:
    value = environ.get(name)
    if value is None:
        raise ConfigError(
            f"environment: {name} is not set, and {names.launcher} sets it together with "
            f"{names.rank if name == names.world else names.world}; set both or none"
        )
    if not value.isdecimal():
        raise ConfigError(f"environment: {name} is {value!r}, where a number from 0 on is expected")
    return int(value)


def _address(names: _Names, environ: Mapping[str, str]) -> str:
    if given := environ.get("MASTER_ADDR"):
        return given
    if names is _SLURM and (nodes := environ.get("SLURM_STEP_NODELIST")):
        return first_host(nodes)
    if names is _OPEN_MPI and environ.get(_LOCAL_WORLD) == environ[names.world]:
        return "127.0.0.1"
    cure = "mpirun -x MASTER_ADDR=<host>" if names is _OPEN_MPI else "export MASTER_ADDR=<host>"
    raise ConfigError(
        f"environment: {names.launcher} started {environ[names.world]} processes, and MASTER_ADDR "
        f"does not say where the first of them runs; `{cure}`"
    )


def _port(names: _Names, environ: Mapping[str, str]) -> int:
    if "MASTER_PORT" in environ:
        return _number(names, "MASTER_PORT", environ)
    if not names.job:
        raise ConfigError(
            "environment: MASTER_PORT is not set; `export MASTER_PORT=<a free port of MASTER_ADDR>`"
        )
    job = ".".join(environ.get(name, "") for name in names.job)
    return FIRST_PORT + zlib.crc32(job.encode()) % N_PORTS


def first_host(nodes: str) -> str:
    """The first of Slurm's list of nodes: node01 of `node[01-04,7],gpu3`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0] if first else nodes)
