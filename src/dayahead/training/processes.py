"""Processes of a run: starting them, and what they say to each other."""

import ctypes
import logging
import os
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dayahead.config.training import ComputeConfig
from dayahead.data.batches import Share
from dayahead.errors import ConfigError, DeadProcessError, TrainingError
from dayahead.files import read_json

T = TypeVar("T")
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 2**30
_OF_A_DEATH = ("exit code", "RuntimeError", "Dist")
"""How causes begin that are no fault of the work: other errors would come again."""
_log = logging.getLogger(__name__)

# Of a process that fails they write its whole traceback; what matters of it we tell ourselves.
for _noisy in ("elastic.multiprocessing.api", "elastic.agent.server.api"):
    logging.getLogger(f"torch.distributed.{_noisy}").setLevel(logging.CRITICAL)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Process:
    """This process among all of a run."""

    share: Share
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes and reports."""
        return self.share.rank == 0

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the device has instructions for bfloat16 products, not just the type."""
        if self.device.type == "cuda":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))

    def summed(self, values: Tensor) -> Tensor:
        """Sum of `values` over all processes, on every process."""
        if self.share.world > 1:
            dist.all_reduce(values)
        return values

    def told(self, value: T) -> T:
        """Give every process what the main one has; what the others pass is not looked at."""
        if self.share.world == 1:
            return value
        held: list[Any] = [value if self.is_main else None]
        dist.broadcast_object_list(held, src=0)
        return cast("T", held[0])


def run_processes(work: Callable[..., None], compute: ComputeConfig, *args: object) -> None:
    """Call `work(process, *args)` in `compute.processes` processes, and wait for all.

    One process runs right here; several are started through torchrun's API (gloo on the CPU,
    NCCL on GPUs) and `args` must pickle. Where one of these dies, all are started again, at most
    compute.max_restarts times; what `work` finished before it has to find by itself.

    Raises:
        ConfigError: CUDA is asked for and there is none, or fewer GPUs than processes.
        TrainingError: a process failed; the others were stopped.
    """
    device, n_processes, n_threads = _resolved(compute)
    if n_processes == 1:
        _settle(device, n_threads)
        work(Process(Share(0, 1), torch.device(device)), *args)
        return
    for n_left in reversed(range(compute.max_restarts + 1)):
        try:
            _launch(n_processes, work, device, n_threads, args)
        except DeadProcessError as death:
            if n_left == 0:
                raise
            _log.warning("%s; all are started again, at most %d times", death, n_left)
        else:
            return


def _launch(
    n_processes: int,
    work: Callable[..., None],
    device: str,
    n_threads: int,
    args: tuple[object, ...],
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
            max_restarts=0,
            monitor_interval=0.2,
            start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(launch, _worker)(work, device, n_threads, args)
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
def _worker(
    work: Callable[..., None], device: str, n_threads: int, args: tuple[object, ...]
) -> None:
    # A SIGKILL of the launcher would leave this process running.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    local_rank = int(os.environ["LOCAL_RANK"])
    own = torch.device(device, local_rank) if device == "cuda" else torch.device(device)
    _settle(device, n_threads)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", device_id=own if device == "cuda" else None
    )
    work(Process(Share(dist.get_rank(), dist.get_world_size()), own), *args)
    # Not after a failure: the others must not hear of it before its cause is written down.
    dist.destroy_process_group()


def _settle(device: str, n_threads: int) -> None:
    torch.set_num_threads(n_threads)
    # Every step frees and takes the same large tensors. Where glibc hands their pages back in
    # between, a sixth of a step on the CPU goes into page faults.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))


def _resolved(compute: ComputeConfig) -> tuple[str, int, int]:
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = ("cuda" if n_gpus else "cpu") if compute.device == "auto" else compute.device
    if compute.processes == "auto":
        n_processes = max(1, n_gpus) if device == "cuda" else 1
    else:
        n_processes = compute.processes
    if device == "cuda" and n_gpus < n_processes:
        raise ConfigError(
            f"params.yaml: compute.device is cuda and compute.processes {n_processes}, but torch "
            f"sees {n_gpus} GPUs; lower compute.processes or set compute.device to cpu"
        )
    n_cores = len(os.sched_getaffinity(0))
    if compute.threads == "auto":
        return device, n_processes, max(1, n_cores // n_processes)
    return device, n_processes, compute.threads
