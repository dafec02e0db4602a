"""A Dask cluster for the length of a stage."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from dask.utils import parse_bytes
from dask_cuda import LocalCUDACluster
from distributed import Client, LocalCluster
from merlin.core.compat import HAS_GPU, cudf

from dayahead.config.params import MachineConfig, PreprocessConfig
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.types import Device

START_SECONDS = 120
"""How long workers may take until they are there."""
END_SECONDS = 30
_CONNECT_SECONDS = 10


def device_of(config: PreprocessConfig) -> Device:
    """Settle `auto`: cuda where cudf is importable and a GPU is there.

    Raises:
        ConfigError: cuda is demanded and cannot be had.
    """
    has_cuda = cudf is not None and HAS_GPU
    if config.device == "cuda" and not has_cuda:
        raise ConfigError(
            "params.yaml: preprocess.device: cuda needs a GPU and cudf (RAPIDS), and "
            f"{'no GPU was found' if cudf is not None else 'cudf is not importable'}; "
            "install RAPIDS or set it to cpu or auto"
        )
    return "cuda" if has_cuda and config.device != "cpu" else "cpu"


@contextmanager
def dask_client(
    config: MachineConfig, device: Device, scratch: Path, *, is_small: bool = False
) -> Iterator[Client]:
    """Connect to the scheduler named in the settings, or start a cluster and stop it at the end.

    Workers and this process share a file system: tables travel through files in `scratch`. Where
    the settings leave it open, work that `is_small` is done by threads of this process: workers of
    their own take longer to start than it takes.

    Raises:
        ConfigError: the scheduler's address or the memory limit is wrong.
        DataError: no worker comes up.
    """
    # Workers that are stopped complain of closed connections.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if config.scheduler is not None:
        with _connected(config.scheduler) as client:
            yield client
        return
    cluster, n_workers = _cluster(config, device, scratch, is_small=is_small)
    try:
        with Client(cluster.scheduler_address) as client:  # by itself it waits for all workers
            _await(client, n_workers)
            yield client
    finally:
        with suppress(TimeoutError):  # as where a worker was killed at its start
            cluster.close(timeout=END_SECONDS)


def _await(client: Client, n_workers: int) -> None:
    """Wait for all workers; those that are there in the end must do."""
    with suppress(TimeoutError):
        client.wait_for_workers(n_workers, timeout=START_SECONDS)
    if not client.ncores():
        raise DataError(
            f"preprocess: no Dask worker came up within {START_SECONDS} s, for want of memory or "
            f"of time; lower machine.workers, or run again"
        )


def _connected(address: str) -> Client:
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"params.yaml: machine.scheduler: no Dask scheduler answers at {address} "
            f"({type(error).__name__}); start one with `dask scheduler`, or set it to null"
        ) from None
    try:
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    except TimeoutError:
        client.close()
        raise ConfigError(
            f"params.yaml: machine.scheduler: the Dask scheduler at {address} has no worker; "
            f"start some with `dask worker {address}`, on machines that share this file system"
        ) from None
    return client


def _cluster(
    config: MachineConfig, device: Device, scratch: Path, *, is_small: bool
) -> tuple[LocalCluster, int]:
    """A cluster, and how many workers it will have."""
    options: dict[str, Any] = {
        "memory_limit": memory_limit(config),
        "local_directory": str(scratch),
        # Their pages, of which nobody asked for one, stay on this machine.
        "dashboard_address": "127.0.0.1:0",
        "worker_dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.CRITICAL,
    }
    if device == "cuda":
        n_workers = None if config.workers == "auto" else config.workers
        cluster = LocalCUDACluster(n_workers=n_workers, **options)
        return cluster, len(cluster.worker_spec)
    cores = psutil.cpu_count() or 1
    if is_small and config.workers == "auto":
        # What this process holds beside its tasks must not pause them.
        here = {**options, "memory_limit": 0, "processes": False}
        return LocalCluster(n_workers=1, threads_per_worker=cores, **here), 1
    n_workers = max(1, cores // 2) if config.workers == "auto" else config.workers
    threads = max(1, cores // n_workers)
    # None at first: a cluster that starts with workers waits without end for one that is killed
    # meanwhile, though another takes its place.
    cluster = LocalCluster(n_workers=0, threads_per_worker=threads, processes=True, **options)
    cluster.scale(n_workers)
    return cluster, n_workers


def memory_limit(config: MachineConfig) -> int:
    """Bytes that one worker may hold.

    Raises:
        ConfigError: the setting is no size.
    """
    try:
        return int(parse_bytes(config.memory_limit))
    except ValueError:
        raise ConfigError(
            f"params.yaml: machine.memory_limit: expected a size such as 4GiB "
            f"(got {config.memory_limit!r})"
        ) from None
