"""Workers for the length of a stage, threads or a Dask cluster, and phases of tasks on them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import dask
import psutil
from dask.utils import parse_bytes
from distributed import Client, KilledWorker, LocalCluster
from tqdm import tqdm

from dayahead.config.machine import MachineConfig
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.phases import note_peak, peak_memory
from dayahead.core.phases import phase as counted

T = TypeVar("T")
MIN_MEMORY, MAX_MEMORY = 1 << 26, 1 << 50
START_SECONDS = 120
"""How long workers may take to start."""
END_SECONDS = 30
_CONNECT_SECONDS = 10
_ADDRESS = "DASK_SCHEDULER_ADDRESS"
"""Dask's own variable: the address of a machine is not a setting of a study."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """An executor of tasks, which shares a file system with this process."""

    executor: Executor
    n_threads: int
    """Number of tasks that run at once."""
    peaks: Callable[[], Iterable[int]] = tuple
    """Peak memory of each process but this one, in bytes."""


@contextmanager
def workers(config: MachineConfig, scratch: Path, *, is_small: bool = False) -> Iterator[Workers]:
    """Connect to the scheduler that Dask's configuration names, or start workers for the stage.

    Tables travel through files in `scratch`. Where the settings leave it open, work that `is_small`
    is done by threads of this process: a cluster takes longer to start than the work takes.

    Raises:
        ConfigError: the scheduler's address or the memory limit is wrong.
        DataError: no worker starts.
    """
    # Workers that are stopped log errors about closed connections.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    limit = memory_limit(config)
    if address := dask.config.get("scheduler-address", None):
        with _connected(address) as client:
            yield _of_client(client)
    elif is_small and config.workers == "auto":
        n_threads = psutil.cpu_count() or 1
        with ThreadPoolExecutor(n_threads) as executor:
            yield Workers(executor, n_threads)
    else:
        with _started(config, scratch, limit) as client:
            yield _of_client(client)


def _of_client(client: Client) -> Workers:
    return Workers(
        # Not pure: tasks write files, so Dask must not reuse the result of an equal call.
        client.get_executor(pure=False),
        int(sum(client.ncores().values())),
        lambda: client.run(peak_memory, on_error="ignore").values(),
    )


@contextmanager
def _started(config: MachineConfig, scratch: Path, limit: int) -> Iterator[Client]:
    """Start a cluster on this machine, and stop it at the end."""
    with counted("cluster"):
        cluster, n_workers = _cluster(config, scratch, limit)
    try:
        # By address: a client of the cluster object would wait for all workers.
        with Client(cluster.scheduler_address) as client:
            with counted("cluster"):
                _wait(client, cluster, n_workers)
            if not client.ncores():
                raise DataError(
                    f"preprocess: no Dask worker started within {START_SECONDS} s, for lack of "
                    f"memory or time; lower machine.workers, or run again"
                )
            yield client
    finally:
        # A worker that was killed at its start can keep the cluster from closing.
        with counted("cluster"), suppress(TimeoutError):
            cluster.close(timeout=END_SECONDS)


def _wait(client: Client, cluster: LocalCluster, n_workers: int) -> None:
    """Wait until workers have started; go on with those that have."""
    try:
        client.wait_for_workers(n_workers, timeout=START_SECONDS)
    except TimeoutError:
        # Dask puts no other worker in the place of one that died as it started.
        cluster.scale(2 * n_workers - len(client.nthreads()))
        with suppress(TimeoutError):
            client.wait_for_workers(n_workers, timeout=START_SECONDS)


def _connected(address: str) -> Client:
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{_ADDRESS}: no Dask scheduler at {address} ({type(error).__name__}); start one with "
            f"`dask scheduler`, or unset the variable"
        ) from None
    try:
        client.wait_for_workers(1, timeout=START_SECONDS)
    except TimeoutError:
        client.close()
        raise ConfigError(
            f"{_ADDRESS}: the Dask scheduler at {address} has no worker after {START_SECONDS} s; "
            f"start some with `dask worker {address}`, on machines that share this file system"
        ) from None
    return client


def _cluster(config: MachineConfig, scratch: Path, limit: int) -> tuple[LocalCluster, int]:
    """Return a cluster, and how many workers it will have."""
    cores = psutil.cpu_count() or 1
    n_workers = max(1, cores // 2) if config.workers == "auto" else config.workers
    # No workers at first: a cluster that starts with some waits forever if one is killed meanwhile,
    # even though another takes its place.
    cluster = LocalCluster(
        n_workers=0,
        threads_per_worker=max(1, cores // n_workers),
        processes=True,
        memory_limit=limit,
        local_directory=str(scratch),
        # Dashboards listen on this machine only.
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )
    cluster.scale(n_workers)
    return cluster, n_workers


def memory_limit(config: MachineConfig) -> int:
    """Return the bytes that one worker may hold.

    Raises:
        ConfigError: the setting is no size, or too small for a worker.
    """
    with suppress(ValueError, OverflowError):
        if MIN_MEMORY <= (size := int(parse_bytes(config.memory_limit))) < MAX_MEMORY:
            return size
    raise ConfigError(
        f"params.yaml: machine.memory_limit: expected a size such as 4GiB, from 64MiB to 1PiB "
        f"(got {config.memory_limit!r})"
    )


@dataclass(frozen=True)
class Phases:
    """Runs the tasks of one phase after another; they exchange files in `scratch`."""

    workers: Workers
    scratch: Path

    def run(self, phase: str, function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
        """Map `function` over arguments on the workers, as `map` does.

        The first error that occurs is raised, and tasks that have not started are cancelled.

        Raises:
            DataError: workers died repeatedly while running a task, or the scheduler was lost.
        """
        with counted(phase):
            tasks = zip(*arguments, strict=True)
            futures = [self.workers.executor.submit(function, *task) for task in tasks]
            try:
                with tqdm(total=len(futures), desc=phase, disable=None, leave=False) as bar:
                    for future in as_completed(futures):
                        future.result()
                        bar.update()
            except KilledWorker:
                raise DataError(
                    f"preprocess, {phase}: Dask workers died repeatedly, out of memory or "
                    f"killed; raise machine.memory_limit or lower machine.workers"
                ) from None
            except CancelledError:
                raise DataError(
                    f"preprocess, {phase}: the Dask scheduler was lost; run again"
                ) from None
            finally:
                for future in futures:
                    future.cancel()
            _log.info("preprocess: %s: %d done", phase, len(futures))
            note_peak(max(self.workers.peaks(), default=0) / 2**20)
            return [future.result() for future in futures]

    def paths(self, phase: str, n: int) -> list[Path]:
        """Return the scratch files of a phase."""
        return [self.scratch / f"{phase}-{number:05d}.events" for number in range(n)]

    def clear(self, phase: str) -> None:
        """Remove the scratch files of a phase that no task reads any more."""
        for path in self.scratch.glob(f"{phase}-*.events"):
            path.unlink()
