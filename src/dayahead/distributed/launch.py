"""How the processes of a run come about: one, several here, or those that a launcher started."""

import ctypes
import logging
import multiprocessing
import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dayahead.config.params import ComputeConfig
from dayahead.core.errors import ConfigError, DeadProcessError, TrainingError
from dayahead.core.files import read_json
from dayahead.distributed.launchers import LaunchInfo, launch_info
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.rendezvous import process_group, set_up_process

PR_SET_PDEATHSIG = 1
_OF_A_DEATH = ("exit code", "RuntimeError", "Dist")
"""How causes begin that are no fault of the work: other errors would come again."""
_log = logging.getLogger(__name__)

# Of a process that fails they write its whole traceback; what matters of it we tell ourselves.
for _noisy in ("elastic.multiprocessing.api", "elastic.agent.server.api"):
    logging.getLogger(f"torch.distributed.{_noisy}").setLevel(logging.CRITICAL)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


def run_processes(
    work: Callable[..., None], compute: ComputeConfig, *args: object, max_restarts: int = 0
) -> None:
    """Call `work(process, *args)` in `compute.processes` processes, and wait for all.

    Where a launcher started this process (torchrun, mpirun, srun) it is one of the launcher's, and
    calls `work` for itself alone. Else one process runs right here; several are started through
    torchrun's API (gloo on the CPU, NCCL on GPUs) and `args` must pickle. Where one of these dies,
    all are started again, at most `max_restarts` times; what `work` finished before it has
    to find by itself.

    Raises:
        ConfigError: CUDA is asked for and there is none, or fewer GPUs than processes; or a
            launcher started another number of processes.
        TrainingError: a process failed; the others were stopped.
    """
    place = launch_info(os.environ)
    n_processes = _n_processes(compute, place)
    if n_processes == 1:
        device = _device(compute, 0)
        n_cores = len(os.sched_getaffinity(0))
        set_up_process(device, n_cores if compute.threads == "auto" else compute.threads)
        work(Process(Rank(0, 1), device), *args)
    elif place is not None:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _end_with_the_launcher()
        device = _device(compute, place.local_rank)
        with process_group(place, device, compute, is_watched=True) as process:
            work(process, *args)
    else:
        _start_until_done(n_processes, work, compute, args, max_restarts)


def _n_processes(compute: ComputeConfig, place: LaunchInfo | None) -> int:
    if place is not None:
        if compute.processes not in ("auto", place.world):
            raise ConfigError(
                f"params.yaml: compute.processes is {compute.processes}, and {place.launcher} "
                f"started {place.world}; set compute.processes to auto, which takes any number, or "
                f"start as many"
            )
        return place.world
    is_cuda = _kind(compute) == "cuda"
    if compute.processes == "auto":
        n_processes = max(1, _n_gpus()) if is_cuda else 1
    else:
        n_processes = compute.processes
    if is_cuda and _n_gpus() < n_processes:
        raise ConfigError(
            f"params.yaml: compute.device is cuda and compute.processes {n_processes}, but torch "
            f"sees {_n_gpus()} GPUs; lower compute.processes or set compute.device to cpu"
        )
    return n_processes


def _n_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _kind(compute: ComputeConfig) -> str:
    if compute.device == "auto":
        return "cuda" if _n_gpus() else "cpu"
    return compute.device


def _device(compute: ComputeConfig, local_rank: int) -> torch.device:
    """Of a machine's process: its GPU by number, or the only one that its launcher lets it see."""
    if _kind(compute) == "cpu":
        return torch.device("cpu")
    n_gpus = _n_gpus()
    if n_gpus != 1 and local_rank >= n_gpus:
        raise ConfigError(
            f"params.yaml: compute.device is cuda, and this is process {local_rank} of its machine "
            f"(from 0 on), where torch sees {n_gpus} GPUs; start one process for each GPU, or set "
            f"compute.device to cpu"
        )
    return torch.device("cuda", 0 if n_gpus == 1 else local_rank)


def _start_until_done(
    n_processes: int,
    work: Callable[..., None],
    compute: ComputeConfig,
    args: tuple[object, ...],
    max_restarts: int,
) -> None:
    for n_left in reversed(range(max_restarts + 1)):
        try:
            _start(n_processes, work, compute, args)
        except DeadProcessError as death:
            if n_left == 0:
                raise
            _log.warning("%s; all are started again, at most %d times", death, n_left)
        else:
            return


def _start(
    n_processes: int, work: Callable[..., None], compute: ComputeConfig, args: tuple[object, ...]
) -> None:
    # torchrun's own restarts hang on gloo, so it is told of none.
    with TemporaryDirectory(prefix="dayahead-") as logs:
        launch = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=n_processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            monitor_interval=0.2,
            start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(launch, _worker)(work, compute, args)
        except ChildFailedError as failure:
            rank, cause = _first_failure(failure, Path(logs))
            raise (DeadProcessError if cause.startswith(_OF_A_DEATH) else TrainingError)(
                f"process {rank} of {n_processes} failed and the others were stopped: {cause}"
            ) from None


def _first_failure(failure: ChildFailedError, logs: Path) -> tuple[int, str]:
    """Rank and cause of what failed first: torch may name one that only lost its connection."""
    rank, told = failure.get_first_failure()
    causes = sorted(logs.rglob("error.json"), key=lambda path: path.stat().st_mtime_ns)
    if told.exitcode < 0 or not causes:  # killed by a signal, or gone without a word
        return rank, f"exit code {told.exitcode}"
    return int(causes[0].parent.name), read_json(causes[0])["message"]["message"]


@record
def _worker(work: Callable[..., None], compute: ComputeConfig, args: tuple[object, ...]) -> None:
    _end_with_the_launcher()
    place = launch_info(os.environ)
    assert place is not None
    device = _device(compute, place.local_rank)
    with process_group(place, device, compute, is_watched=False) as process:
        work(process, *args)


def _end_with_the_launcher() -> None:
    """A SIGKILL of torchrun would leave this process running."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid != os.getppid():  # it was killed before it was asked for
        os.kill(os.getpid(), signal.SIGKILL)
