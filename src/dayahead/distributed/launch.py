"""Start the processes of a run: one, several on this machine, or those of a launcher."""

import ctypes
import logging
import multiprocessing
import os
import signal
import uuid
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dayahead.config.machine import ComputeConfig
from dayahead.core.errors import ConfigError, DeadProcessError, TrainingError
from dayahead.core.files import read_json
from dayahead.distributed.launchers import LaunchInfo, launch_info
from dayahead.distributed.process import Process, Rank, set_up_process
from dayahead.distributed.process_group import process_group

PR_SET_PDEATHSIG = 1
VISIBLE, HIDDEN = "CUDA_VISIBLE_DEVICES", ("", "-1")
"""CUDA's variable of visible GPUs, and its values that hide all of them."""
DRIVER = Path("/proc/driver/nvidia/version")
_RESTARTABLE = ("exit code", "RuntimeError", "Dist")
"""Prefixes of failures that are worth a restart: a killed process, a lost connection."""
_log = logging.getLogger(__name__)

# These log the whole traceback of a failed process; we report its cause in one line.
for _noisy in ("elastic.multiprocessing.api", "elastic.agent.server.api"):
    logging.getLogger(f"torch.distributed.{_noisy}").setLevel(logging.CRITICAL)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


def run_processes(
    work: Callable[..., None], compute: ComputeConfig, *args: object, max_restarts: int = 0
) -> None:
    """Call `work(process, *args)` in `compute.processes` processes, and wait for all.

    A process that a launcher started (torchrun, mpirun, srun) is one of the launcher's and calls
    `work` once, for itself. Otherwise a single process runs here, and several are started through
    torchrun's API (gloo on the CPU, NCCL on GPUs); then `args` must pickle, and if a process dies,
    all are restarted, at most `max_restarts` times: `work` must resume by itself.

    Raises:
        ConfigError: CUDA is requested and there is none, or there are fewer GPUs than processes; or
            a launcher started another number of processes.
        TrainingError: a process failed; the others were stopped.
    """
    launch = launch_info(os.environ)
    n_processes = _n_processes(compute, launch)
    if n_processes == 1:
        work(main_process(compute, 1), *args)
    elif launch is not None:
        agent = multiprocessing.parent_process()  # None unless `_start` spawned this process
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _die_with_parent(agent)
        device = _device(compute, launch.local_rank)
        with process_group(launch, device, compute, has_heartbeat=agent is None) as process:
            work(process, *args)
    else:
        for n_left in reversed(range(max_restarts + 1)):
            try:
                _start(n_processes, work, compute, *args)
            except DeadProcessError as death:
                if n_left == 0:
                    raise
                _log.warning("%s; all are started again, at most %d times", death, n_left)
            else:
                return


def main_process(compute: ComputeConfig, n_processes: int | None = None) -> Process:
    """Set this process up as `run_processes` would set up the main one, without the others.

    It knows their number, but has no collectives.

    Args:
        compute: devices, threads and number of processes.
        n_processes: 1: it is the only one, even in one of a launcher's; None: as `compute` says.

    Raises:
        ConfigError: as `run_processes`.
    """
    if n_processes is None:
        n_processes = _n_processes(compute, launch_info(os.environ))
    device = _device(compute, 0)
    # The number of threads affects rounding, and with machine.strict the cache keys.
    n_threads = max(1, len(os.sched_getaffinity(0)) // n_processes)
    set_up_process(device, n_threads if compute.threads == "auto" else compute.threads)
    return Process(Rank(0, n_processes), device)


def _n_processes(compute: ComputeConfig, launch: LaunchInfo | None) -> int:
    if launch is not None:
        if compute.processes not in ("auto", launch.world_size):
            raise ConfigError(
                f"params.yaml: compute.processes is {compute.processes}, but {launch.launcher} "
                f"started {launch.world_size}; set compute.processes to auto, which takes any "
                f"number, or start as many"
            )
        return launch.world_size
    n_gpus = _n_gpus(compute)
    n_processes = max(1, n_gpus or 0) if compute.processes == "auto" else compute.processes
    if n_gpus is not None and n_gpus < n_processes:
        cure = _unused_driver() if n_gpus == 0 else "lower compute.processes"
        raise ConfigError(
            f"params.yaml: compute.device is {compute.device} and compute.processes is "
            f"{n_processes}, but torch sees {n_gpus} GPUs; {cure} or set compute.device to cpu"
        )
    return n_processes


def _n_gpus(compute: ComputeConfig) -> int | None:
    """GPUs of this machine; None if the run uses the CPU."""
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    is_cpu = compute.device == "cpu" or (compute.device == "auto" and n_gpus == 0)
    return None if is_cpu else n_gpus


def _device(compute: ComputeConfig, local_rank: int) -> torch.device:
    """The CPU, the GPU of this local rank, or the only GPU that the launcher made visible.

    If there are more processes than GPUs, those that share one are reported when all have met.
    """
    n_gpus = _n_gpus(compute)
    if n_gpus is None:
        is_meant = compute.device == "cpu" or os.environ.get(VISIBLE) in HIDDEN
        if DRIVER.is_file() and not is_meant and local_rank == 0:
            _log.warning("this run uses the CPU: %s or set compute.device to cpu", _unused_driver())
        return torch.device("cpu")
    if n_gpus == 0:
        raise ConfigError(
            f"params.yaml: compute.device is cuda, but torch sees 0 GPUs; {_unused_driver()} or "
            f"set compute.device to cpu"
        )
    return torch.device("cuda", local_rank % n_gpus)


def _unused_driver() -> str:
    """Advice where torch sees no GPU; the driver may be too old for torch's CUDA."""
    if os.environ.get(VISIBLE) in HIDDEN:
        return f"the variable {VISIBLE} hides them; remove it"
    if not DRIVER.is_file():
        return "no driver is loaded (/proc/driver/nvidia); use a machine with a GPU"
    first_line = DRIVER.read_text().partition("\n")[0]
    built_for = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs"
    return (
        f"there is a driver here ({first_line}), which torch {torch.__version__}, {built_for}, "
        f"cannot use; update one of them"
    )


def _start(
    n_processes: int, work: Callable[..., None], compute: ComputeConfig, *args: object
) -> None:
    with TemporaryDirectory(prefix="dayahead-") as logs:
        launch = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=n_processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,  # we restart: torch would also restart after a user's mistake
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(launch, _worker)(work, compute, *args)
        except ChildFailedError as failure:
            rank, cause = _first_failure(failure, Path(logs))
            raise (DeadProcessError if cause.startswith(_RESTARTABLE) else TrainingError)(
                f"process {rank} of {n_processes} failed and the others were stopped: {cause}"
            ) from None


def _first_failure(failure: ChildFailedError, logs: Path) -> tuple[int, str]:
    """Rank and cause of the first failure; torch may name one that only lost its connection."""
    rank, first = failure.get_first_failure()
    causes = sorted(logs.rglob("error.json"), key=lambda path: path.stat().st_mtime_ns)
    if first.exitcode < 0 or not causes:  # killed by a signal, or it left no cause
        return rank, f"exit code {first.exitcode}"
    return int(causes[0].parent.name), read_json(causes[0])["message"]["message"]


@record
def _worker(work: Callable[..., None], compute: ComputeConfig, *args: object) -> None:
    run_processes(work, compute, *args)


def _die_with_parent(parent: BaseProcess | None) -> None:
    """Let the kernel kill this process with its launcher, also after a SIGKILL of torchrun."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and parent.pid != os.getppid():  # the parent was killed before the call
        os.kill(os.getpid(), signal.SIGKILL)
