"""Runs that torchrun, mpirun, srun or a hand started, on one machine."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import timedelta

import psutil
import pytest

from dayahead.core.errors import ConfigError, TrainingError
from dayahead.core.files import read_json
from dayahead.distributed import rendezvous as meeting
from dayahead.distributed.launch import run_processes
from support.launched_study import (
    assert_equal,
    clean_environment,
    errors_in,
    left_in,
    ranks,
    run_study,
    study_command,
    wait_for,
    write_host,
)
from support.tiny_settings import compute_config
from support.worker_studies import say_who


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The study on one process."""
    folder = write_host(tmp_path_factory.mktemp("one"))
    run_study(folder, 1)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The study on two processes that nothing disturbs."""
    folder = write_host(tmp_path_factory.mktemp("two"))
    run_study(folder, 2)
    return folder


@pytest.fixture
def host(tmp_path):
    """A folder with the study's windows."""
    return write_host(tmp_path / "host")


def as_torchrun(rank, port):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
    }


def as_slurm(rank, port):
    return {
        "SLURM_JOB_ID": port,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def as_open_mpi(rank, port):
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": port,
    }


SUM = """
import json, sys, torch
from dayahead.config.params import ComputeConfig
from dayahead.distributed.launch import run_processes
def work(process):
    print(process.is_main, int(process.all_reduce(torch.tensor(process.rank.index + 1))))
run_processes(work, ComputeConfig(**json.loads(sys.argv[1])))
"""


def test_a_launcher_s_processes_start_nothing_and_find_each_other(tmp_path, free_port):
    compute = json.dumps(asdict(compute_config(processes="auto")))
    with ranks() as started:
        for rank in (0, 1):
            command = [sys.executable, "-c", SUM, compute]
            started.start(command, tmp_path, **as_slurm(rank, free_port))
        said = started.said()
    assert started.statuses == [0, 0], said
    assert [each.splitlines()[-1] for each in said] == ["True 3", "False 3"]


@pytest.mark.slow
@pytest.mark.parametrize("variables", [as_torchrun, as_slurm, as_open_mpi])
def test_two_processes_that_a_launcher_started_do_as_one(one, host, free_port, variables):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(), host, **variables(rank, free_port))
        said = started.said()
    assert started.statuses == [0, 0], said
    assert_equal(one, host)
    assert "evaluated" in said[0]
    assert "evaluated" not in said[1]


def refuse_to_start(launcher):
    """Skip what is not there."""
    if shutil.which(launcher, path=clean_environment()["PATH"]) is None:
        pytest.skip(f"{launcher} is not installed")
    if launcher == "srun":
        nodes = subprocess.run(["sinfo", "-h"], capture_output=True, text=True, check=False)
        if not nodes.stdout.strip():
            pytest.skip(f"no Slurm answers here: {nodes.stderr.strip()}")


LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node=2", "--master-port=PORT"],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable],
    "srun": ["srun", "-n", "2", "--overcommit", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_real_launcher_starts_two(two, host, free_port, launcher):
    refuse_to_start(launcher)
    words = [word.replace("PORT", free_port) for word in LAUNCHERS[launcher]]
    with ranks() as started:
        started.start([*words, *study_command()[1:]], host)
        said = started.said()
    assert started.statuses == [0], said
    assert left_in(host) == left_in(two)


@pytest.mark.slow
@pytest.mark.parametrize("rendezvous", ["--master-port=PORT", "--standalone"])
def test_torchrun_starts_again_what_was_killed(two, host, free_port, rendezvous):
    """Its store outlives its processes in either way."""
    options = ["--nproc-per-node=2", "--max-restarts=2", rendezvous.replace("PORT", free_port)]
    with ranks() as started:
        torchrun = started.start(["torchrun", *options, *study_command()[1:]], host)
        for window in ("2026-01-03", "2026-01-05"):
            wait_for(f"measured {window}", torchrun)
            psutil.Process(torchrun.pid).children()[1].kill()
        said = started.said(timeout=120)
    assert started.statuses == [0], said
    assert "out of the store" in said[0]
    assert left_in(host) == left_in(two)


@pytest.mark.slow
def test_nothing_outlives_torchrun(host, free_port):
    command = ["torchrun", "--nproc-per-node=2", f"--master-port={free_port}"]
    with ranks() as started:
        torchrun = started.start([*command, *study_command()[1:]], host)
        wait_for("measured 2026-01-02", torchrun)
        children = psutil.Process(torchrun.pid).children()
        torchrun.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
    assert (len(children), alive) == (2, [])


@pytest.mark.slow
def test_two_agents_of_torchrun_are_one_run(one, tmp_path, free_port):
    """As on two machines, each with a copy of its own."""
    hosts = [write_host(tmp_path / name) for name in ("first", "second")]
    agent = ["torchrun", "--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    with ranks() as started:
        for number, folder in enumerate(hosts):
            node = [f"--node-rank={number}", f"--master-port={free_port}"]
            started.start([*agent, *node, *study_command()[1:]], folder)
        said = started.said()
    assert started.statuses == [0, 0], said
    assert_equal(one, hosts[0])
    assert [folder.name for folder in hosts[1].iterdir()] == ["windows"]


@pytest.mark.slow
def test_copies_that_differ_are_named(tmp_path, free_port):
    hosts = [write_host(tmp_path / name) for name in ("first", "second")]
    (hosts[1] / "windows" / "session_start_date=2026-01-03-train.parquet").write_bytes(b"no")
    with ranks() as started:
        for rank, folder in enumerate(hosts):
            started.start(study_command(), folder, **as_torchrun(rank, free_port))
        said = started.said()
    assert started.statuses == [1, 1]
    for each in said:
        [line] = errors_in(each)
        assert line.count(" is ") == 1
        assert "windows/session_start_date=2026-01-03-train.parquet is " in line
        assert line.index(f"{hosts[0]}, ") < line.index(f"{hosts[1]}; bring all copies")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_is_killed_ends_the_others_and_costs_nothing(two, host, free_port, killed):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(30), host, **as_torchrun(rank, free_port))
        wait_for("measured 2026-01-03", started.processes[0])
        started.processes[killed].send_signal(signal.SIGKILL)
        said = started.said(timeout=20)
    assert sorted(started.statuses) == [-9, 1]
    [line] = errors_in(said[1 - killed])
    assert f"process {1 - killed} of 2 on " in line
    assert "another process has ended" in line
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(), host, **as_torchrun(rank, free_port))
        said = started.said()
    assert started.statuses == [0, 0], said
    assert "out of the store" in said[0]
    assert left_in(host) == left_in(two)


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_others(host, free_port):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(3), host, **as_torchrun(rank, free_port))
        wait_for("measured 2026-01-03", started.processes[0])
        started.processes[1].send_signal(signal.SIGSTOP)
        said = started.processes[0].communicate(timeout=20)[0]
    assert started.statuses[0] == 1
    [line] = errors_in(said)
    assert "process 0 of 2 on " in line
    assert "has not been heard of for 3 s" in line


@pytest.fixture
def launched(monkeypatch, free_port):
    """This process as the first of two."""
    for name, value in as_torchrun(0, free_port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def test_another_number_of_processes_than_was_started_is_refused(launched):
    with pytest.raises(ConfigError, match=r"compute\.processes is 4, and torchrun started 2; set"):
        run_processes(say_who, compute_config(processes=4))


def test_a_launcher_of_one_starts_no_more(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    run_processes(say_who, compute_config(processes="auto", device="cpu"), tmp_path)
    assert read_json(tmp_path / "0.json")["world"] == 1
    with pytest.raises(ConfigError, match=r"compute\.processes is 2, and torchrun started 1"):
        run_processes(say_who, compute_config(processes=2))


def test_processes_that_do_not_come_are_told_of(launched, monkeypatch):
    monkeypatch.setattr(meeting, "START", timedelta(seconds=1))
    told = r"process 0 of 2 on .* do not come together at localhost:\d+ .*were started"
    with pytest.raises(TrainingError, match=told):
        run_processes(say_who, compute_config(processes="auto"))


def test_an_address_that_is_none_is_refused(launched, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(ConfigError, match=r"MASTER_ADDR no-such-host\.invalid is not reached"):
        run_processes(say_who, compute_config(processes="auto"))
