"""The process group of a run: rendezvous, checks that its processes fit together, heartbeat."""

import atexit
import json
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from threading import Event, Thread

import psutil
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    PrefixStore,
    Store,
    _abort_process_group,
    _set_pg_timeout,
)
from torch.distributed.elastic.utils.store import synchronize
from torch.distributed.rendezvous import rendezvous

from dayahead.config.machine import ComputeConfig
from dayahead.core.errors import ConfigError, DeadProcessError, TrainingError, first_line
from dayahead.distributed.collectives import TIMEOUT
from dayahead.distributed.launchers import LaunchInfo
from dayahead.distributed.process import Process, Rank, divide_cores

RENDEZVOUS_TIMEOUT = timedelta(minutes=10)
"""Time for all processes to arrive: on a cold machine the imports alone take minutes."""
NETWORK = "GLOO_SOCKET_IFNAME"
INTERVAL = 5.0
"""Seconds between two heartbeats."""
HEARTBEAT_TIMEOUT = timedelta(seconds=60)
"""A process that misses heartbeats for this long counts as lost."""
POLL = 0.05
"""Seconds between two checks whether a heartbeat is complete."""
GRACE = 10.0
"""Seconds in which the main thread may fail on its own before the process is ended."""


@contextmanager
def process_group(
    launch: LaunchInfo, device: torch.device, compute: ComputeConfig, *, has_heartbeat: bool
) -> Iterator[Process]:
    """Join the process group of a run for the length of the block.

    With `has_heartbeat` this process detects by itself that another one is lost.

    Raises:
        ConfigError: the processes do not fit together.
        TrainingError: the rendezvous failed.
        DeadProcessError: another process is lost.
    """
    name = f"process {launch.rank} of {launch.world_size} on {socket.gethostname()}"
    own_address = _choose_network(launch)
    try:
        _init_process_group(launch, device, own_address)
    except RuntimeError as error:
        raise TrainingError(
            f"{name}: rendezvous at {launch.address}:{launch.port} failed "
            f"({first_line(error)}); check that all processes were started, that "
            f"MASTER_PORT is free and MASTER_ADDR reachable from all, and that {NETWORK} "
            f"({os.environ.get(NETWORK)}) is the network between them"
        ) from None
    try:
        process = Process(Rank(launch.rank, launch.world_size), device)
        divide_cores(process, compute)
        with heartbeat(name) if has_heartbeat else nullcontext():
            yield process
    except BaseException:
        # Only at exit: the others must not notice before the cause is written. But before Python
        # ends, or a gloo thread that releases a tensor would abort the process. And abort, because
        # NCCL's destroy waits for the others, which wait for this process.
        atexit.register(_abort_process_group)
        raise
    dist.destroy_process_group()


def _init_process_group(launch: LaunchInfo, device: torch.device, own_address: str) -> None:
    rank, world_size, is_cuda = launch.rank, launch.world_size, device.type == "cuda"
    host = f"[{launch.address}]" if ":" in launch.address else launch.address
    url = f"tcp://{host}:{launch.port}"
    store, _, _ = next(rendezvous(url, rank, world_size, timeout=RENDEZVOUS_TIMEOUT))
    store = PrefixStore(_attempt(rank, world_size, store), store)
    facts = {
        "host": socket.gethostname(),
        "own address": own_address,
        "compute.device": device.type,
        "GPU": str(torch.cuda.get_device_properties(device).uuid) if is_cuda else "",
        "the version of torch": torch.__version__,
    }
    encoded = json.dumps(facts).encode()
    every = synchronize(
        store, encoded, rank, world_size, "facts", RENDEZVOUS_TIMEOUT.total_seconds()
    )
    check_processes_match([json.loads(each) for each in every])
    dist.init_process_group(
        "nccl" if is_cuda else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=RENDEZVOUS_TIMEOUT,
        device_id=device if is_cuda else None,
    )
    _set_pg_timeout(TIMEOUT)


def _attempt(rank: int, world_size: int, store: Store) -> str:
    """Agree on a name for this attempt.

    torchrun's store outlives restarts, with the keys of failed attempts, some of which ended before
    all ranks had arrived; and its agents on two machines count restarts differently. So rank 0
    answers the token of each rank until that rank confirms.
    """
    token = uuid.uuid4().hex
    if rank > 0:
        store.set(f"token-{rank}", token)
        name = str(store.get(f"reply-{token}"), "ascii")
        store.set(f"confirmed-{name}-{rank}", "")
        return name
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT.total_seconds()
    for other in range(1, world_size):
        while not store.check([f"confirmed-{token}-{other}"]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {other} did not arrive")
            store.set(f"reply-{str(store.get(f'token-{other}'), 'ascii')}", token)
            time.sleep(0.02)
    return token


def check_processes_match(every: Sequence[Mapping[str, str]]) -> None:
    """Check that processes with these facts, by rank, can form a group.

    Raises:
        ConfigError: devices, versions of torch or networks do not match, or processes share a GPU.
    """
    main = every[0]
    for other in every[1:]:
        for name in ("compute.device", "the version of torch"):
            if other[name] != main[name]:
                raise ConfigError(
                    f"{name} is {main[name]} for process 0 on {main['host']}, {other[name]} on "
                    f"{other['host']}; make it the same and run again"
                )
    for host in {each["host"] for each in every if each["GPU"]}:
        used = [each["GPU"] for each in every if each["host"] == host]
        if len(set(used)) < len(used):
            raise ConfigError(
                f"{len(used)} processes were started on {host}, which has {len(set(used))} GPUs "
                f"for them; start one process per GPU, or set compute.device to cpu"
            )
    local = [each for each in every if re.match(r"127\.|::1$", each["own address"])]
    if local and len(local) < len(every):
        raise ConfigError(
            f"environment: MASTER_ADDR resolves to {local[0]['own address']} on "
            f"{local[0]['host']}, which no other machine can reach; set it to an address of the "
            f"network between the machines, or name that network in {NETWORK} on all of them"
        )


def _choose_network(launch: LaunchInfo) -> str:
    """Let gloo use the network interface that leads to rank 0, unless the user names one.

    By default gloo takes the address of the host name, which is often 127.0.1.1. Returns this
    machine's address in that network; empty if the user names one.
    """
    if NETWORK in os.environ:
        return ""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            launch.address, launch.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as udp:
            udp.connect(address)  # sends nothing
            own = str(udp.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"environment: MASTER_ADDR {launch.address} is not reachable from "
            f"{socket.gethostname()} ({error}); set it to a name or address of the machine of "
            f"process 0"
        ) from None
    for name, addresses in psutil.net_if_addrs().items():
        if own in (each.address for each in addresses):
            os.environ[NETWORK] = name
    return own


@contextmanager
def heartbeat(name: str) -> Iterator[None]:
    """End this process when another one is lost; all processes enter and leave together.

    When a machine or the network fails, torch waits silently until TIMEOUT, which must be long
    because a process may work alone for minutes. Therefore a thread of every process takes part in
    an all_reduce every few seconds. Messages call this process `name`.

    Raises:
        DeadProcessError: another process is lost.
    """
    thread = _Heartbeat(name)
    thread.start()
    try:
        yield
        thread.is_done.set()
        thread.join()
    except RuntimeError:  # raised by torch if it lost a connection
        thread.has_left.set()
        thread.join(INTERVAL + GRACE)
        if not thread.failure:
            raise
    finally:  # after another error the heartbeat continues until the process exits
        thread.has_left.set()
    if thread.failure:
        raise DeadProcessError(thread.failure) from None


class _Heartbeat(Thread):
    def __init__(self, process_name: str) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.process_name = process_name
        self.failure = ""
        self.is_done, self.has_left = Event(), Event()
        self.group = dist.new_group(backend="gloo", timeout=HEARTBEAT_TIMEOUT)

    def run(self) -> None:
        n_done, world_size = torch.tensor(0), dist.get_world_size()
        try:
            while n_done < world_size:
                self.is_done.wait(INTERVAL)
                n_done = torch.tensor(int(self.is_done.is_set()))
                beat = dist.all_reduce(n_done, group=self.group, async_op=True)
                # Polling, as a thread that waits inside torch when Python exits aborts the process.
                while not beat.is_completed():
                    time.sleep(POLL)
                beat.wait()
        except (RuntimeError, ValueError) as error:  # ValueError: this process is leaving
            self._fail(str(error))

    def _fail(self, message: str) -> None:
        if "Timed out" in message:
            cause = (
                f"no sign of another process for {HEARTBEAT_TIMEOUT.total_seconds():.0f} s: it "
                f"hangs, or its machine or the network is down"
            )
        else:  # gloo's message without its source line and advice
            message = message.split("] ", 1)[-1].split(". ")[0]
            cause = f"another process has ended ({message}); its own output may say why"
        self.failure = f"{self.process_name}: {cause}; run again: finished work is kept"
        if not self.has_left.wait(GRACE):
            # The main thread waits inside torch, where no exception can reach it.
            sys.stderr.write(f"error: {self.failure}\n")
            sys.stderr.flush()
            os._exit(1)
