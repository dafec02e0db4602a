"""How a process comes together with the others of its run, and what each then has for itself."""

import atexit
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from ctypes import CDLL
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from dayahead.config.params import ComputeConfig
from dayahead.core.errors import ConfigError, TrainingError
from dayahead.distributed.affinity import bind, cores_near, slice_of
from dayahead.distributed.heartbeat import Heartbeat
from dayahead.distributed.launchers import LaunchInfo
from dayahead.distributed.process import TIMEOUT, Process, Rank

START = timedelta(minutes=10)
"""For all to come: on a cold machine the libraries alone take minutes to read."""
NETWORK = "GLOO_SOCKET_IFNAME"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, KEPT_BYTES_OF_SHARED = 2**30, 2**26
"""Largest tensor whose pages stay where it is freed; of a table in parts, which are large ones."""
_log = logging.getLogger(__name__)


@contextmanager
def process_group(
    place: LaunchInfo, device: torch.device, compute: ComputeConfig, *, is_watched: bool
) -> Iterator[Process]:
    """Be one of the processes of a run while the block runs.

    Args:
        place: of this process.
        device: it computes on.
        compute: threads.
        is_watched: whether nobody else ends this process where another one is lost.

    Raises:
        ConfigError: the processes cannot be of one run.
        TrainingError: the others do not come.
        DeadProcessError: another process is lost.
    """
    who = f"process {place.rank} of {place.world} on {socket.gethostname()}"
    own_address = _choose_network(place)
    try:
        _meet(place, device, own_address)
    except RuntimeError as error:
        raise TrainingError(
            f"{who}: the processes do not come together at {place.address}:{place.port} "
            f"({str(error).splitlines()[0]}); look whether all were started, whether MASTER_ADDR "
            f"and MASTER_PORT are free and within reach of all, and whether {NETWORK} "
            f"({os.environ.get(NETWORK)}) is the network between them"
        ) from None
    try:
        process = Process(Rank(place.rank, place.world), device)
        _settle_among(process, compute)
        with Heartbeat(who) if is_watched else nullcontext():
            yield process
    except BaseException:
        # Not now: the others must not hear of it before its cause is written down. But before
        # Python ends, or a thread of gloo's that gives a tensor back then aborts the process.
        atexit.register(dist.destroy_process_group)
        raise
    dist.destroy_process_group()


def set_up_process(device: torch.device, n_threads: int, kept_bytes: int = KEPT_BYTES) -> None:
    """Set up this process for its work."""
    torch.set_num_threads(n_threads)
    # Every step frees and takes the same large tensors. Where glibc hands their pages back in
    # between, a sixth of a step on the CPU goes into page faults. Where it keeps them, holes that
    # nothing fits add up: to four times the memory, at a million items in chunks.
    if mallopt := getattr(CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, kept_bytes)
        mallopt(M_TRIM_THRESHOLD, kept_bytes)
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _meet(place: LaunchInfo, device: torch.device, own_address: str) -> None:
    host = f"[{place.address}]" if ":" in place.address else place.address
    url = f"tcp://{host}:{place.port}?rank={place.rank}&world_size={place.world}"
    kept, _, _ = next(rendezvous(url, timeout=START))
    store = PrefixStore(_attempt(place, kept), kept)
    told = {
        "host": socket.gethostname(),
        "own address": own_address,
        "compute.device": device.type,
        "the version of torch": torch.__version__,
    }
    check_processes_match([json.loads(each) for each in _exchanged(json.dumps(told), place, store)])
    is_cuda = device.type == "cuda"
    dist.init_process_group(
        "nccl" if is_cuda else "gloo",
        store=store,
        rank=place.rank,
        world_size=place.world,
        timeout=START,
        device_id=device if is_cuda else None,
    )
    _set_pg_timeout(TIMEOUT)


def _attempt(place: LaunchInfo, kept: Store) -> str:
    """Give all a name for this attempt to meet.

    torchrun keeps its store when it starts all again, with what the dead have written, and some may
    have died before they wrote anything. So process 0 answers whoever asks until all have come.
    """
    own = uuid.uuid4().hex
    if place.rank > 0:
        kept.set(f"asks-{place.rank}", own)
        name = str(kept.get(f"answer-{own}"), "ascii")
        kept.set(f"comes-{place.rank}-{name}", "")
        return name
    missing, end = list(range(1, place.world)), time.monotonic() + START.total_seconds()
    while missing:
        for rank in missing:
            kept.set(f"answer-{str(kept.get(f'asks-{rank}'), 'ascii')}", own)
        time.sleep(0.02)
        missing = [rank for rank in missing if not kept.check([f"comes-{rank}-{own}"])]
        if time.monotonic() > end:
            raise RuntimeError(f"process {missing[0]} is not there")
    return own


def _exchanged(told: str, place: LaunchInfo, store: Store) -> list[bytes]:
    """What every process tells, by rank; the main one, which may hold the store, leaves last."""
    keys, thanks = ([f"{name}-{n}" for n in range(place.world)] for name in ("told", "thanks"))
    store.set(keys[place.rank], told)
    store.wait(keys)
    every: list[bytes] = store.multi_get(keys)
    store.set(thanks[place.rank], "")
    if place.rank == 0:
        store.wait(thanks)
    return every


def check_processes_match(every: Sequence[Mapping[str, str]]) -> None:
    """Stop where processes could not exchange anything.

    Args:
        every: what each process tells of itself, by rank.

    Raises:
        ConfigError: their devices, versions of torch or networks do not go together.
    """
    main = every[0]
    for told in every[1:]:
        for name in ("compute.device", "the version of torch"):
            if told[name] != main[name]:
                raise ConfigError(
                    f"{name} is {main[name]} for process 0 on {main['host']}, {told[name]} on "
                    f"{told['host']}; make it the same and run again"
                )
    near = [told for told in every if _is_loopback(told["own address"])]
    if near and len(near) < len(every):
        raise ConfigError(
            f"environment: MASTER_ADDR leads to {near[0]['own address']} on {near[0]['host']}, "
            f"where no other machine reaches it; set it to an address of the network between all, "
            f"or name that network in {NETWORK} on all"
        )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _choose_network(place: LaunchInfo) -> str:
    """Let gloo take the network by which process 0 is reached, unless one is named.

    Gloo takes the address of this machine's name, which is often 127.0.1.1.

    Returns:
        This machine's address in that network; none where it is named.

    Raises:
        ConfigError: the address is none.
    """
    if NETWORK in os.environ:
        return ""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            place.address, place.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"environment: MASTER_ADDR {place.address} is not reached from {socket.gethostname()} "
            f"({error}); set it to a name or address of the machine of process 0"
        ) from None
    for name, addresses in psutil.net_if_addrs().items():
        if own in (each.address for each in addresses):
            os.environ[NETWORK] = name
    return own


def _settle_among(process: Process, compute: ComputeConfig) -> None:
    """Share the cores of a machine among its processes, unless who started them has done so."""
    cores = cores_near(process.device)
    here = (socket.gethostname(), cores)
    if process.device.type == "cuda":
        torch.cuda.set_device(process.device)  # what is exchanged goes by way of it
    every = process.all_gather(here)
    peers = [rank for rank, there in enumerate(every) if there == here]
    n_cores = len(cores) // len(peers)
    n_threads = max(1, n_cores) if compute.threads == "auto" else compute.threads
    if n_threads > len(cores):
        _log.warning(
            "process %d may run on %d cores, and compute.threads is %d; see --bind-to of mpirun, "
            "--cpus-per-task of srun",
            process.rank.index,
            len(cores),
            n_threads,
        )
    if n_cores >= n_threads:
        bind(slice_of(cores, peers.index(process.rank.index), len(peers)))
    kept_bytes = KEPT_BYTES_OF_SHARED if compute.shard_items else KEPT_BYTES
    set_up_process(process.device, n_threads, kept_bytes)
