import os
import threading
import time

import psutil
import pytest
from distributed import LocalCluster

from dayahead.core.errors import ConfigError, DataError
from dayahead.preprocess.dask_cluster import cudf, dask_client, device_of
from support.builders import machine_config, preprocess_config


@pytest.mark.skipif(cudf is not None, reason="RAPIDS is installed here")
def test_cuda_without_rapids_is_refused_and_auto_takes_the_cpu():
    with pytest.raises(
        ConfigError, match=r"preprocess\.device: cuda needs.*cudf is not importable"
    ):
        device_of(preprocess_config(device="cuda"))
    assert device_of(preprocess_config(device="auto")) == "cpu"


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.dask_cluster._CONNECT_SECONDS", 0.2)
    config = machine_config(scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"preprocess.scheduler.*tcp://127\.0\.0\.1:1"):
        dask_client(config, "cpu", tmp_path).__enter__()


def test_a_memory_limit_must_be_a_size(tmp_path):
    with pytest.raises(ConfigError, match=r"preprocess\.memory_limit.*'much'"):
        dask_client(machine_config(memory_limit="much"), "cpu", tmp_path).__enter__()


def test_a_scheduler_by_address_is_used_and_left_running(dask_address, tmp_path):
    config = machine_config(scheduler=dask_address)
    for _ in range(2):
        with dask_client(config, "cpu", tmp_path) as client:
            assert client.submit(sum, [1, 2]).result() == 3


def test_a_cluster_of_our_own_works_in_processes_and_ends(tmp_path):
    with dask_client(machine_config(workers=1), "cpu", tmp_path) as client:
        assert len(client.scheduler_info()["workers"]) == 1
        worker = client.submit(os.getpid).result()
    assert worker != os.getpid()
    assert not psutil.pid_exists(worker)


@pytest.mark.parametrize(("workers", "here"), [("auto", True), (1, False)])
def test_small_work_stays_in_this_process_unless_workers_are_asked_for(tmp_path, workers, here):
    with dask_client(machine_config(workers=workers), "cpu", tmp_path, is_small=True) as client:
        assert (client.submit(os.getpid).result() == os.getpid()) is here
        assert sum(client.ncores().values()) == psutil.cpu_count()


def listening():
    """Where this process and those it started can be reached."""
    here = psutil.Process()
    found = [c for p in (here, *here.children(recursive=True)) for c in p.net_connections()]
    return {connection.laddr for connection in found if connection.status == "LISTEN"}


@pytest.mark.parametrize("workers", ["auto", 1])
def test_nobody_beyond_this_machine_can_reach_it(tmp_path, workers):
    before = listening()
    with dask_client(machine_config(workers=workers), "cpu", tmp_path, is_small=True) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert {address.ip for address in listening() - before} == {"127.0.0.1"}


@pytest.mark.slow
def test_a_worker_that_is_killed_as_it_starts_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.dask_cluster.END_SECONDS", 1)
    before = set(psutil.Process().children())

    def kill_one():
        while True:
            for child in set(psutil.Process().children()) - before:
                if "spawn_main" in " ".join(child.cmdline()):
                    return child.kill()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with dask_client(machine_config(workers=2), "cpu", tmp_path) as client:
        killer.join()
        assert len(client.ncores()) == 2
        assert client.submit(sum, [1, 2]).result() == 3


def test_a_cluster_without_any_worker_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.preprocess.dask_cluster.START_SECONDS", 0.1)
    monkeypatch.setattr(LocalCluster, "scale", lambda *_: None)
    with pytest.raises(DataError, match=r"no Dask worker came up within.*preprocess\.workers"):
        dask_client(machine_config(workers=2), "cpu", tmp_path).__enter__()
