"""What processes exchange before they form a group."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore

from dayahead.core.errors import ConfigError
from dayahead.distributed import process_group
from dayahead.distributed.launchers import LaunchInfo
from dayahead.distributed.process_group import _attempt, check_processes_match
from support.tiny_settings import compute_config

WORLD_SIZE = 3
MAIN = {
    "host": "a",
    "own address": "10.0.0.1",
    "compute.device": "cpu",
    "GPU": "",
    "the version of torch": "2.13.0",
}
OTHER = MAIN | {"host": "b", "own address": "10.0.0.2"}


@pytest.mark.parametrize("address", [{}, {"own address": "127.0.0.1"}, {"own address": ""}])
@pytest.mark.parametrize("gpus", [("", "", ""), ("uuid 1", "uuid 2", "uuid 3")])
def test_matching_processes_pass(address, gpus):
    facts = zip([MAIN, OTHER, OTHER], gpus, strict=True)
    check_processes_match([each | address | {"GPU": gpu} for each, gpu in facts])


@pytest.mark.parametrize(
    ("main", "other", "message"),
    [
        ({}, {"compute.device": "cuda"}, r"compute\.device is cpu for process 0 on a, cuda on b"),
        ({}, {"the version of torch": "2.12.1"}, r"torch is 2\.13\.0 for process 0 on a, 2\.12\.1"),
        ({"own address": "127.0.0.1"}, {}, r"MASTER_ADDR resolves to 127\.0\.0\.1 on a, which no"),
        ({}, {"own address": "::1"}, r"MASTER_ADDR resolves to ::1 on b.* in GLOO_SOCKET_IFNAME"),
    ],
)
def test_processes_that_do_not_match_raise(main, other, message):
    with pytest.raises(ConfigError, match=message):
        check_processes_match([MAIN | main, OTHER, OTHER | other])


def test_processes_that_share_a_gpu_raise():
    on_gpu = [each | {"compute.device": "cuda", "GPU": "uuid 1"} for each in (MAIN, OTHER, OTHER)]
    check_processes_match(on_gpu[:2])  # equal names on two machines
    with pytest.raises(ConfigError, match="2 processes were started on b, which has 1 GPUs for th"):
        check_processes_match(on_gpu)


def test_a_process_that_fails_aborts_its_group_when_it_exits(monkeypatch, free_port):
    """NCCL's destroy_process_group would wait for the others, and they for this one, an hour."""
    at_exit = []
    # Not `register` of the module itself, with which others register too.
    monkeypatch.setattr(process_group, "atexit", SimpleNamespace(register=at_exit.append))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    launch = LaunchInfo("torchrun", 0, 1, 0, "localhost", int(free_port))
    compute, cpu = compute_config(threads=1), torch.device("cpu")
    with (
        pytest.raises(ConfigError),
        process_group.process_group(launch, cpu, compute, has_heartbeat=False),
    ):
        raise ConfigError("a mistake")
    assert dist.is_initialized()
    with patch.object(dist, "destroy_process_group", side_effect=AssertionError):
        at_exit.pop()()
    assert not dist.is_initialized()
    assert at_exit == []


def attempts(store, ranks):
    """The names on which processes of these ranks agree, started in this order."""
    with ThreadPoolExecutor(WORLD_SIZE) as pool:
        return {*pool.map(lambda rank: _attempt(rank, WORLD_SIZE, store), ranks)}


def test_all_ranks_agree_on_a_new_attempt_after_each_restart():
    store = HashStore()
    names = [attempts(store, order) for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2])]
    assert [len(name) for name in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def test_attempts_that_failed_before_all_ranks_arrived_are_ignored(monkeypatch):
    store = HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):  # rank 0 was killed before it arrived
        _attempt(2, WORLD_SIZE, store)
    monkeypatch.setattr(process_group, "RENDEZVOUS_TIMEOUT", timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):  # rank 1 was
        _attempt(0, WORLD_SIZE, store)
    monkeypatch.undo()
    store.set_timeout(timedelta(seconds=20))
    assert len(attempts(store, [2, 0, 1])) == 1


def test_a_rank_that_does_not_arrive_is_named(monkeypatch):
    store = HashStore()
    for rank in (1, 2):
        store.set(f"token-{rank}", "of a process that died")
    monkeypatch.setattr(process_group, "RENDEZVOUS_TIMEOUT", timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="process 1 did not arrive"):
        _attempt(0, WORLD_SIZE, store)
