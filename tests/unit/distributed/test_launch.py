"""Runs of several processes on one machine, started here, by torchrun, mpirun, srun or by hand."""

import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest
import torch

from dayahead.core.errors import ConfigError, DeadProcessError, TrainingError
from dayahead.core.files import read_json
from dayahead.distributed import launch, process_group
from dayahead.distributed.launch import run_processes
from support.launched_study import (
    assert_equal,
    clean_environment,
    errors_in,
    left_in,
    ranks,
    study_command,
    torchrun_variables,
    wait_for,
    write_host,
)
from support.tiny_settings import compute_config
from support.worker_studies import (
    kill_second,
    kill_second_once,
    raise_in_second,
    write_process_info,
)


def test_one_process_runs_here(tmp_path):
    run_processes(write_process_info, compute_config(processes=1, threads=2), tmp_path)
    info = {"world": 1, "is_main": True, "threads": 2, "sum": 1}
    assert read_json(tmp_path / "0.json") == info
    torch.set_num_threads(1)


@pytest.mark.slow
def test_three_processes_know_their_ranks_and_sum(tmp_path):
    run_processes(write_process_info, compute_config(processes=3, threads=1), tmp_path)
    for rank in range(3):
        info = {"world": 3, "is_main": rank == 0, "threads": 1, "sum": 6}
        assert read_json(tmp_path / f"{rank}.json") == info


@pytest.mark.slow
@pytest.mark.parametrize("max_restarts", [0, 1, 3])
def test_the_first_failure_is_reported_and_a_user_s_mistake_not_retried(max_restarts, caplog):
    """The other process fails too, because it lost its connection."""
    message = r"process 1 of 2 failed.*ConfigError: model\.features: price not among"
    with pytest.raises(TrainingError, match=message) as failure:
        run_processes(raise_in_second, compute_config(processes=2), max_restarts=max_restarts)
    assert not isinstance(failure.value, DeadProcessError)
    assert "started again" not in caplog.text


@pytest.mark.slow
def test_a_killed_process_ends_the_others():
    with pytest.raises(DeadProcessError, match=r"of 2 failed.*(exit code -9|closed by peer)"):
        run_processes(kill_second, compute_config(processes=2))


@pytest.mark.slow
def test_all_processes_are_restarted_if_one_was_killed(tmp_path, caplog):
    run_processes(kill_second_once, compute_config(processes=2), tmp_path, max_restarts=1)
    assert [read_json(tmp_path / f"{rank}.json")["sum"] for rank in (0, 1)] == [3, 3]
    assert caplog.text.count("started again, at most 1 times") == 1


@pytest.fixture
def gpus(monkeypatch):
    """Let torch see a number of GPUs."""

    def see(n_gpus):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return see


@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize(("n_gpus", "n_processes"), [(1, 2), (2, 3), (0, 1)])
def test_more_processes_than_gpus_raise(gpus, tmp_path, device, n_gpus, n_processes):
    gpus(n_gpus)
    compute = compute_config(device=device, processes=n_processes, threads=1)
    message = rf"device is {device} and compute\.processes is {n_processes}.* sees {n_gpus} GPUs; "
    is_right = device == "auto" and n_gpus == 0
    with nullcontext() if is_right else pytest.raises(ConfigError, match=message):
        run_processes(write_process_info, compute, tmp_path)


@pytest.mark.parametrize("hidden", [None, ""])
def test_a_driver_that_torch_cannot_use_is_named(gpus, tmp_path, monkeypatch, caplog, hidden):
    """Else a driver too old for torch's CUDA would mean a run on the CPU in silence."""
    gpus(0)
    driver = tmp_path / "version"
    monkeypatch.setattr(launch, "DRIVER", driver)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    on_cpu = compute_config(device="auto", processes=1, threads=1)
    run_processes(write_process_info, on_cpu, tmp_path)
    assert caplog.text == ""
    driver.write_text("NVRM version: NVIDIA 470.82\nGCC\n")
    run_processes(write_process_info, replace(on_cpu, device="cpu"), tmp_path)
    assert caplog.text == ""
    run_processes(write_process_info, on_cpu, tmp_path)
    pattern = r"uses the CPU: .*\(NVRM version: NVIDIA 470\.82\), which torch .* cannot use; upd"
    assert bool(re.search(pattern, caplog.text)) == (hidden is None)
    cause = "there is a driver.*470.82" if hidden is None else "the variable CUDA_VISIBLE_DEVICES"
    with pytest.raises(ConfigError, match=f"sees 0 GPUs; {cause}"):
        run_processes(write_process_info, replace(on_cpu, device="cuda"), tmp_path)


@pytest.fixture
def launched(monkeypatch, free_port):
    """Variables of the first of two processes."""
    for name, value in torchrun_variables(0, free_port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def test_another_number_of_processes_than_the_launcher_s_raises(launched):
    with pytest.raises(ConfigError, match=r"compute\.processes is 4, but torchrun started 2; set"):
        run_processes(write_process_info, compute_config(processes=4))


def test_a_launcher_of_one_process_starts_no_more(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    run_processes(write_process_info, compute_config(processes="auto", device="cpu"), tmp_path)
    assert read_json(tmp_path / "0.json")["world"] == 1
    with pytest.raises(ConfigError, match=r"compute\.processes is 2, but torchrun started 1"):
        run_processes(write_process_info, compute_config(processes=2))


@pytest.mark.slow
def test_processes_that_do_not_arrive_raise(launched, monkeypatch):
    monkeypatch.setattr(process_group, "RENDEZVOUS_TIMEOUT", timedelta(seconds=1))
    message = r"process 0 of 2 on .*: rendezvous at localhost:\d+ failed .*were started"
    with pytest.raises(TrainingError, match=message):
        run_processes(write_process_info, compute_config(processes="auto"))


def test_an_unknown_address_raises(launched, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(ConfigError, match=r"MASTER_ADDR no-such-host\.invalid is not reachable"):
        run_processes(write_process_info, compute_config(processes="auto"))


@pytest.fixture
def host(tmp_path):
    """A folder with the study's windows."""
    return write_host(tmp_path / "host")


def slurm_variables(rank, port):
    return {
        "SLURM_JOB_ID": port,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def open_mpi_variables(rank, port):
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": port,
    }


@pytest.mark.slow
@pytest.mark.parametrize("variables", [torchrun_variables, slurm_variables, open_mpi_variables])
def test_two_processes_of_a_launcher_agree_with_one(one, host, free_port, variables):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(), host, **variables(rank, free_port))
        said = started.said()
    assert started.statuses == [0, 0], said
    assert_equal(one, host)
    assert "2026-01-03" in said[0]
    assert "2026-01-03" not in said[1]


def skip_without(launcher):
    if shutil.which(launcher, path=clean_environment()["PATH"]) is None:
        pytest.skip(f"{launcher} is not installed")
    if launcher == "srun":
        nodes = subprocess.run(["sinfo", "-h"], capture_output=True, text=True, check=False)
        if not nodes.stdout.strip():
            pytest.skip(f"no running Slurm: {nodes.stderr.strip()}")


LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node=2", "--master-port=PORT"],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable],
    "srun": ["srun", "-n", "2", "--overcommit", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_real_launchers_start_two_processes(two, host, free_port, launcher):
    skip_without(launcher)
    words = [word.replace("PORT", free_port) for word in LAUNCHERS[launcher]]
    with ranks() as started:
        started.start([*words, *study_command()[1:]], host)
        said = started.said()
    assert started.statuses == [0], said
    assert left_in(host) == left_in(two)


@pytest.mark.slow
@pytest.mark.parametrize("rendezvous", ["--master-port=PORT", "--standalone"])
def test_torchrun_restarts_after_kills(two, host, free_port, rendezvous):
    """In both ways its store outlives its processes."""
    options = ["--nproc-per-node=2", "--max-restarts=2", rendezvous.replace("PORT", free_port)]
    with ranks() as started:
        torchrun = started.start(["torchrun", *options, *study_command()[1:]], host)
        for window in ("2026-01-03", "2026-01-05"):
            wait_for(window, torchrun)
            psutil.Process(torchrun.pid).children()[1].kill()
        said = started.said(timeout=120)
    assert started.statuses == [0], said
    assert "from the cache" in said[0]
    assert left_in(host) == left_in(two)


@pytest.mark.slow
def test_two_agents_of_torchrun_restart_after_a_kill(two, tmp_path, free_port):
    """Only one of them counts the restart, so their processes see different counts."""
    hosts = [write_host(tmp_path / name) for name in ("first", "second")]
    agent = ["torchrun", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3"]
    agent += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port}", "--rdzv-id=1"]
    with ranks() as started:
        for number, folder in enumerate(hosts):
            node = ["--local-addr=127.0.0.1", f"--rdzv-conf=is_host={1 - number}"]
            started.start([*agent, *node, *study_command()[1:]], folder)
        out = [folder / "out" for folder in hosts]
        while not any(path.exists() for path in out):
            time.sleep(0.1)
        main = [path.exists() for path in out].index(True)
        wait_for("2026-01-03", started.processes[main])
        psutil.Process(started.processes[1 - main].pid).children()[0].kill()
        said = started.said(timeout=120)
    assert started.statuses == [0, 0], said
    assert "from the cache" in said[main]
    assert left_in(hosts[main]) == left_in(two)


@pytest.mark.slow
def test_no_process_outlives_torchrun(host, free_port):
    command = ["torchrun", "--nproc-per-node=2", f"--master-port={free_port}"]
    with ranks() as started:
        torchrun = started.start([*command, *study_command()[1:]], host)
        wait_for("2026-01-02", torchrun)
        children = psutil.Process(torchrun.pid).children()
        torchrun.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
    assert (len(children), alive) == (2, [])


@pytest.mark.slow
def test_two_agents_of_torchrun_are_one_run(one, tmp_path, free_port):
    """As on two machines, each with its own copy of the windows."""
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
def test_different_copies_are_reported(tmp_path, free_port):
    hosts = [write_host(tmp_path / name) for name in ("first", "second")]
    (hosts[1] / "windows" / "session_start_date=2026-01-03-train.parquet").write_bytes(b"no")
    with ranks() as started:
        for rank, folder in enumerate(hosts):
            started.start(study_command(), folder, **torchrun_variables(rank, free_port))
        said = started.said()
    assert started.statuses == [1, 1]
    for each in said:
        [line] = errors_in(each)
        assert line.count(" is ") == 1
        assert "windows/session_start_date=2026-01-03-train.parquet is " in line
        assert line.index(f"{hosts[0]}, ") < line.index(f"{hosts[1]}; ")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others_and_a_rerun_resumes(two, host, free_port, killed):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(30), host, **torchrun_variables(rank, free_port))
        wait_for("2026-01-03", started.processes[0])
        started.processes[killed].send_signal(signal.SIGKILL)
        said = started.said(timeout=20)
    assert sorted(started.statuses) == [-9, 1]
    [line] = errors_in(said[1 - killed])
    assert f"process {1 - killed} of 2 on " in line
    assert "another process has ended" in line
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(), host, **torchrun_variables(rank, free_port))
        said = started.said()
    assert started.statuses == [0, 0], said
    assert "from the cache" in said[0]
    assert left_in(host) == left_in(two)


@pytest.mark.slow
def test_a_hanging_process_ends_the_others(host, free_port):
    with ranks() as started:
        for rank in (0, 1):
            started.start(study_command(3), host, **torchrun_variables(rank, free_port))
        wait_for("2026-01-03", started.processes[0])
        started.processes[1].send_signal(signal.SIGSTOP)
        said = started.processes[0].communicate(timeout=20)[0]
    assert started.statuses[0] == 1
    [line] = errors_in(said)
    assert "process 0 of 2 on " in line
    assert "no sign of another process for 3 s" in line
