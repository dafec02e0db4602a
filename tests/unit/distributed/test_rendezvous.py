"""What processes tell each other before anything else."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from dayahead.core.errors import ConfigError
from dayahead.core.files import read_json
from dayahead.distributed import rendezvous as meeting
from dayahead.distributed.launch import run_processes
from dayahead.distributed.launchers import LaunchInfo
from dayahead.distributed.rendezvous import _attempt, check_processes_match
from support.tiny_settings import compute_config
from support.worker_studies import note_cores

N_PROCESSES = 3
MAIN = {
    "host": "a",
    "own address": "10.0.0.1",
    "compute.device": "cpu",
    "the version of torch": "2.13.0",
}
OTHER = MAIN | {"host": "b", "own address": "10.0.0.2"}


def test_processes_of_one_kind_may_meet():
    check_processes_match([MAIN, OTHER, OTHER])
    near = {"own address": "127.0.0.1"}
    check_processes_match([MAIN | near, OTHER | near])
    check_processes_match([MAIN | {"own address": ""}, OTHER | {"own address": ""}])


@pytest.mark.parametrize(
    ("main", "other", "told"),
    [
        ({}, {"compute.device": "cuda"}, r"compute\.device is cpu for process 0 on a, cuda on b"),
        ({}, {"the version of torch": "2.12.1"}, r"torch is 2\.13\.0 for process 0 on a, 2\.12\.1"),
        ({"own address": "127.0.0.1"}, {}, r"MASTER_ADDR leads to 127\.0\.0\.1 on a, where no"),
        ({}, {"own address": "::1"}, r"MASTER_ADDR leads to ::1 on b.* in GLOO_SOCKET_IFNAME"),
    ],
)
def test_processes_that_cannot_exchange_anything_are_told_why(main, other, told):
    with pytest.raises(ConfigError, match=told):
        check_processes_match([MAIN | main, OTHER, OTHER | other])


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "is_shared"), [("auto", True), (99, False)])
def test_processes_share_the_cores_of_their_machine(tmp_path, threads, is_shared):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one core cannot be shared out")
    run_processes(note_cores, compute_config(processes=2, threads=threads), tmp_path)
    first, second = (read_json(tmp_path / f"{rank}.json") for rank in (0, 1))
    if is_shared:
        assert set(first["cores"]) & set(second["cores"]) == set()
        assert len(first["cores"]) == len(second["cores"]) == len(allowed) // 2
    else:
        assert first["cores"] == second["cores"] == allowed
    n_threads = len(allowed) // 2 if threads == "auto" else threads
    assert first["threads"] == second["threads"] == n_threads


def names_of(store, ranks):
    """What processes of these ranks come to call their attempt."""
    with ThreadPoolExecutor(N_PROCESSES) as pool:
        return {*pool.map(lambda rank: _attempt(place_of(rank), store), ranks)}


def place_of(rank):
    return LaunchInfo("torchrun", rank, N_PROCESSES, rank, "localhost", 1)


def test_all_find_the_attempt_that_they_are_of():
    store = HashStore()
    names = [names_of(store, order) for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2])]
    assert [len(name) for name in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def test_an_attempt_goes_past_those_of_earlier_ones_that_died_before_they_met(monkeypatch):
    store = HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):  # process 0 was killed before it came
        _attempt(place_of(2), store)
    monkeypatch.setattr(meeting, "START", timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):  # process 1 was
        _attempt(place_of(0), store)
    monkeypatch.undo()
    store.set_timeout(timedelta(seconds=20))
    assert len(names_of(store, [2, 0, 1])) == 1


def test_a_process_that_does_not_come_is_named(monkeypatch):
    store = HashStore()
    for rank in (1, 2):
        store.set(f"asks-{rank}", "of a process that died")
    monkeypatch.setattr(meeting, "START", timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="process 1 is not there"):
        _attempt(place_of(0), store)
