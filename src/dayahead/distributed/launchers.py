"""The launcher that started this process (torchrun, mpirun or srun), from the environment."""

import os
import re
import shlex
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dayahead.core.errors import ConfigError

LAUNCH = "DAYAHEAD_LAUNCH"
"""Environment variable: the launcher command that the stage `train` executes in its place."""
FIRST_PORT, N_PORTS = 61_440, 4_096
"""Default ports, chosen by the job id: above the range that Linux assigns to clients."""
LAST_PORT = 65_535
_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}
_JOB_ID = {"mpirun": ("PMIX_NAMESPACE",), "srun": ("SLURM_JOB_ID", "SLURM_STEP_ID")}


@dataclass(frozen=True)
class LaunchInfo:
    """Values that a launcher sets in the environment of a process."""

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    """Rank among the processes of this machine."""
    address: str
    """Address of rank 0's machine."""
    port: int


def launch_info(environ: Mapping[str, str]) -> LaunchInfo | None:
    """Read a launcher's variables; None if no launcher started this process.

    Supports torchrun (or its variables set by hand), Open MPI's mpirun and Slurm's srun, the
    innermost one. A Slurm batch script is not a rank, although it has SLURM_PROCID, and neither is
    a step of one task: Slurm runs everything in steps.

    Raises:
        ConfigError: a variable is missing or invalid.
    """
    launcher = _launcher(environ)
    if launcher is None:
        return None
    rank_name, size_name, local_name = _VARIABLES[launcher]
    cure = f"{launcher} sets {rank_name} and {size_name} together: set both or neither"
    rank, world_size = (_number(environ, name, cure) for name in (rank_name, size_name))
    if rank >= world_size:
        raise ConfigError(
            f"environment: {rank_name} is {rank}, expected 0 to {size_name} - 1 = {world_size - 1}"
        )
    # Kubernetes sets no local rank: it starts one process per machine.
    local_rank = _number({local_name: "0"} | dict(environ), local_name, cure)
    address, port = "", 0
    if world_size > 1:
        address, port = _address(environ, launcher), _port(environ, launcher)
    return LaunchInfo(launcher, rank, world_size, local_rank, address, port)


def is_secondary_process(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started this process with a rank above 0; rank 0 writes and reports."""
    launch = launch_info(environ)
    return launch is not None and launch.rank > 0


def exec_launcher(environ: Mapping[str, str]) -> None:
    """Replace this process by the launcher in DAYAHEAD_LAUNCH, which runs this script in each rank.

    Returns only if there is no such variable, or a launcher has started this process. The launcher
    gets `environ` without DAYAHEAD_LAUNCH.

    Raises:
        ConfigError: the program is not found, or a quotation is not closed.
    """
    words = _words(environ.get(LAUNCH, ""))
    if not words or launch_info(environ) is not None:
        return
    python = [] if Path(words[0]).name == "torchrun" else [sys.executable]  # torchrun adds its own
    passed_on = {name: value for name, value in environ.items() if name != LAUNCH}
    try:
        os.execvpe(words[0], [*words, *python, *sys.argv], passed_on)  # noqa: S606 set by the user
    except FileNotFoundError:
        raise ConfigError(
            f"{LAUNCH}: there is no program {words[0]} here; name one, or unset {LAUNCH}"
        ) from None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(
            f"{LAUNCH}: {command!r}: {error}; expected a command as a shell reads it, such as "
            f"'srun -n 4'"
        ) from None


def _launcher(environ: Mapping[str, str]) -> str | None:
    for launcher in ("torchrun", "mpirun"):
        if any(name in environ for name in _VARIABLES[launcher][:2]):
            return launcher
    return "srun" if environ.get("SLURM_STEP_NUM_TASKS", "1") != "1" else None


def _number(environ: Mapping[str, str], name: str, cure: str) -> int:
    value = environ.get(name)
    if value is None or not value.isdecimal():
        found = "not set" if value is None else repr(value)
        raise ConfigError(f"environment: {name} is {found}, expected a number from 0 on; {cure}")
    return int(value)


def _address(environ: Mapping[str, str], launcher: str) -> str:
    if address := environ.get("MASTER_ADDR"):
        return address
    if launcher == "srun" and (nodes := environ.get("SLURM_STEP_NODELIST")):
        return first_host(nodes)
    world_size = environ[_VARIABLES[launcher][1]]
    if launcher == "mpirun" and environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == world_size:
        return "127.0.0.1"
    export = "mpirun -x" if launcher == "mpirun" else "export"
    raise ConfigError(
        f"environment: MASTER_ADDR is not set, but {launcher} started {world_size} processes; "
        f"`{export} MASTER_ADDR=<host of rank 0>`"
    )


def _port(environ: Mapping[str, str], launcher: str) -> int:
    if "MASTER_PORT" in environ or launcher not in _JOB_ID:
        cure = "`export MASTER_PORT=<a free port of MASTER_ADDR>`"
        port = _number(environ, "MASTER_PORT", cure)
        if not 0 < port <= LAST_PORT:
            raise ConfigError(
                f"environment: MASTER_PORT is {port}, expected 1 to {LAST_PORT}; {cure}"
            )
        return port
    job = ".".join(environ.get(name, "") for name in _JOB_ID[launcher])
    return FIRST_PORT + zlib.crc32(job.encode()) % N_PORTS


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list: node01 of `node[01-04,7],gpu3`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0] if first else nodes)
