"""Which launcher started this process, by the variables that torchrun, Open MPI and Slurm set."""

import shutil
import subprocess
import sys

import pytest

from dayahead.core.errors import ConfigError
from dayahead.distributed.launchers import (
    FIRST_PORT,
    LAUNCH,
    N_PORTS,
    LaunchInfo,
    exec_launcher,
    first_host,
    is_secondary_process,
    launch_info,
)

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
SLURM_SCRIPT = {
    "SLURM_JOB_ID": "71",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_JOB_NODELIST": "node[07-08]",
}
"""A batch script has the number of tasks of its steps, and the rank of one."""
SLURM = SLURM_SCRIPT | {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "953745409",
    "PMIX_RANK": "3",
}


def without(environ, *names):
    return {name: value for name, value in environ.items() if name not in names}


def test_torchrun_sets_everything():
    assert launch_info(TORCHRUN) == LaunchInfo("torchrun", 3, 4, 1, "10.0.0.1", 29500)
    assert launch_info(without(TORCHRUN, "LOCAL_RANK")).local_rank == 0


def test_one_process_needs_no_address():
    one = {"RANK": "0", "WORLD_SIZE": "1"}
    assert launch_info(one) == LaunchInfo("torchrun", 0, 1, 0, "", 0)


def test_processes_of_mpirun_on_one_machine_need_no_address():
    info = launch_info(OPEN_MPI)
    assert info == LaunchInfo("mpirun", 3, 4, 3, "127.0.0.1", info.port)
    assert FIRST_PORT <= info.port < FIRST_PORT + N_PORTS


def test_mpirun_on_several_machines_needs_an_address():
    several = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(ConfigError, match=r"MASTER_ADDR.*`mpirun -x MASTER_ADDR=<host of rank 0>`"):
        launch_info(several)
    assert launch_info(several | {"MASTER_ADDR": "node07"}).address == "node07"


def test_rank_0_of_a_slurm_step_runs_on_its_first_node():
    info = launch_info(SLURM)
    assert info == LaunchInfo("srun", 3, 4, 1, "node07", info.port)
    named = launch_info(SLURM | {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4000"})
    assert (named.address, named.port) == ("10.0.0.7", 4000)


def test_each_job_and_step_has_its_own_port():
    others = [{"SLURM_JOB_ID": "72"}, {"SLURM_STEP_ID": "1"}, {}]
    assert len({launch_info(SLURM | other).port for other in others}) == 3
    assert launch_info(OPEN_MPI).port != launch_info(OPEN_MPI | {"PMIX_NAMESPACE": "1"}).port
    # Slurm starts the daemons of mpirun in a step that differs between machines.
    assert launch_info(OPEN_MPI | {"SLURM_STEP_ID": "5"}).port == launch_info(OPEN_MPI).port


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"MASTER_ADDR": "10.0.0.1", "LOCAL_RANK": "0"},
        SLURM_SCRIPT,
        without(SLURM_SCRIPT, "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
        SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
    ids=["nothing", "an address", "batch script", "salloc", "step of one task"],
)
def test_these_processes_have_no_launcher(environ):
    assert launch_info(environ) is None
    assert not is_secondary_process(environ)


def test_the_innermost_launcher_counts():
    assert launch_info(SLURM | TORCHRUN).launcher == "torchrun"
    assert launch_info(SLURM | OPEN_MPI).launcher == "mpirun"


def test_only_rank_0_is_not_secondary():
    assert is_secondary_process(TORCHRUN)
    assert not is_secondary_process(TORCHRUN | {"RANK": "0"})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (without(TORCHRUN, "WORLD_SIZE"), r"WORLD_SIZE is not set.* RANK and WORLD_SIZE together"),
        (without(TORCHRUN, "RANK"), r"RANK is not set.* RANK and WORLD_SIZE together"),
        (without(TORCHRUN, "MASTER_ADDR"), r"`export MASTER_ADDR=<host of rank 0>`"),
        (without(TORCHRUN, "MASTER_PORT"), r"`export MASTER_PORT="),
        (TORCHRUN | {"MASTER_PORT": "0"}, r"MASTER_PORT is 0, expected 1 to 65535; `export"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, r"MASTER_PORT is 70000, expected 1 to 65535; `exp"),
        (TORCHRUN | {"RANK": "4"}, r"RANK is 4, expected 0 to WORLD_SIZE - 1 = 3"),
        (TORCHRUN | {"WORLD_SIZE": "four"}, r"WORLD_SIZE is 'four', expected a number"),
        (without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), r"OMPI_COMM_WORLD_SIZE is not set"),
        (without(SLURM, "SLURM_PROCID"), r"SLURM_PROCID is not set.*; srun sets SLURM_PROCID"),
        (without(SLURM, "SLURM_STEP_NODELIST"), r"MASTER_ADDR is not set, but srun started 4"),
    ],
)
def test_missing_and_invalid_variables_raise(environ, message):
    with pytest.raises(ConfigError, match=message):
        launch_info(environ)


NODES = {
    "gpu3": "gpu3",
    "node[01-04,7],gpu3": "node01",
    "node7,node[01-04]": "node7",
    "rack[2,1]node[003-004]": "rack2node003",
    "node-1.site.org,node-2.site.org": "node-1.site.org",
}


@pytest.mark.parametrize(("nodes", "first"), NODES.items())
def test_the_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm is not installed")
@pytest.mark.parametrize("nodes", NODES)
def test_the_first_host_agrees_with_slurm(nodes):
    command = ["scontrol", "show", "hostnames", nodes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"scontrol does not work here: {done.stderr.strip()}")
    assert done.stdout.split()[0] == first_host(nodes)


@pytest.fixture
def executed(monkeypatch):
    """Arguments of the calls that would replace this process."""
    calls = []
    monkeypatch.setattr("os.execvpe", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(sys, "argv", ["stages/train.py"])
    return calls


def test_a_launcher_runs_this_script_in_python(executed):
    exec_launcher({LAUNCH: "srun --cpu-bind='map cpu' -n 4", "HOME": "/root"})
    command = ["srun", "--cpu-bind=map cpu", "-n", "4", sys.executable, "stages/train.py"]
    assert executed == [("srun", command, {"HOME": "/root"})]


def test_torchrun_adds_python_itself(executed):
    exec_launcher({LAUNCH: "/opt/bin/torchrun --nproc-per-node=2"})
    command = ["/opt/bin/torchrun", "--nproc-per-node=2", "stages/train.py"]
    assert executed == [("/opt/bin/torchrun", command, {})]


@pytest.mark.parametrize("environ", [{}, {LAUNCH: " "}, {LAUNCH: "srun", **SLURM}])
def test_no_launcher_is_executed_without_a_name_or_inside_one(executed, environ):
    exec_launcher(environ)
    assert executed == []


def test_a_quotation_that_is_not_closed_raises():
    message = rf"{LAUNCH}: .*cpu-bind='map.*: No closing quotation; expected a command"
    with pytest.raises(ConfigError, match=message):
        exec_launcher({LAUNCH: "srun --cpu-bind='map cpu -n 4"})


def test_an_unknown_launcher_raises():
    with pytest.raises(ConfigError, match=rf"{LAUNCH}: there is no program no-such-launcher here"):
        exec_launcher({LAUNCH: "no-such-launcher -n 2", "PATH": "/usr/bin"})
