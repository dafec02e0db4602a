"""Who started this process, by the variables that torchrun, Open MPI and Slurm really set."""

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
BATCH = {
    "SLURM_JOB_ID": "71",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_JOB_NODELIST": "node[07-08]",
}
"""What the script of a job has: the number of its steps' tasks, and the place of one of them."""
STEP = BATCH | {
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


def test_torchrun_says_all():
    assert launch_info(TORCHRUN) == LaunchInfo("torchrun", 3, 4, 1, "10.0.0.1", 29500)


def test_a_machine_has_one_process_where_nothing_is_said_of_more():
    assert launch_info(without(TORCHRUN, "LOCAL_RANK")).local_rank == 0


def test_processes_of_mpirun_meet_on_their_machine():
    place = launch_info(OPEN_MPI)
    assert (place.launcher, place.rank, place.world, place.local_rank) == ("mpirun", 3, 4, 3)
    assert place.address == "127.0.0.1"
    assert FIRST_PORT <= place.port < FIRST_PORT + N_PORTS


def test_mpirun_on_several_machines_must_be_told_where_the_first_is():
    several = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(ConfigError, match=r"MASTER_ADDR.*`mpirun -x MASTER_ADDR=<host>`"):
        launch_info(several)
    assert launch_info(several | {"MASTER_ADDR": "node07"}).address == "node07"


def test_a_step_of_slurm_meets_on_its_first_node():
    place = launch_info(STEP)
    assert (place.launcher, place.rank, place.world, place.local_rank) == ("srun", 3, 4, 1)
    assert place.address == "node07"
    named = launch_info(STEP | {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4000"})
    assert (named.address, named.port) == ("10.0.0.7", 4000)


def test_jobs_and_steps_meet_at_ports_of_their_own():
    others = [{"SLURM_JOB_ID": "72"}, {"SLURM_STEP_ID": "1"}, {}]
    assert len({launch_info(STEP | other).port for other in others}) == 3
    assert launch_info(OPEN_MPI).port != launch_info(OPEN_MPI | {"PMIX_NAMESPACE": "1"}).port
    # The step in which Slurm starts mpirun's own daemon differs from machine to machine.
    assert launch_info(OPEN_MPI | {"SLURM_STEP_ID": "5"}).port == launch_info(OPEN_MPI).port


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"MASTER_ADDR": "10.0.0.1", "LOCAL_RANK": "0"},
        BATCH,
        without(BATCH, "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
    ids=["nothing", "an address", "batch script", "salloc", "step of one task"],
)
def test_nobody_started_these(environ):
    assert launch_info(environ) is None
    assert not is_secondary_process(environ)


def test_the_inner_launcher_counts():
    assert launch_info(STEP | TORCHRUN).launcher == "torchrun"
    assert launch_info(STEP | OPEN_MPI).launcher == "mpirun"


def test_one_process_needs_no_address():
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    assert launch_info(alone) == LaunchInfo("torchrun", 0, 1, 0, "", 0)


def test_the_first_of_several_is_no_helper():
    assert is_secondary_process(TORCHRUN)
    assert not is_secondary_process(TORCHRUN | {"RANK": "0"})


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (without(TORCHRUN, "WORLD_SIZE"), r"WORLD_SIZE is not set.*together with RANK"),
        (without(TORCHRUN, "RANK"), r"RANK is not set.*together with WORLD_SIZE"),
        (without(TORCHRUN, "MASTER_ADDR"), r"`export MASTER_ADDR=<host>`"),
        (without(TORCHRUN, "MASTER_PORT"), r"`export MASTER_PORT="),
        (TORCHRUN | {"RANK": "4"}, r"RANK is 4, counted from 0, and WORLD_SIZE only 4"),
        (TORCHRUN | {"WORLD_SIZE": "four"}, r"WORLD_SIZE is 'four', where a number"),
        (without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), r"OMPI_COMM_WORLD_SIZE is not set"),
        (without(STEP, "SLURM_PROCID"), r"SLURM_PROCID is not set, and srun sets it"),
        (without(STEP, "SLURM_STEP_NODELIST"), r"srun started 4 processes, and MASTER_ADDR"),
    ],
)
def test_half_a_launcher_is_refused(environ, told):
    with pytest.raises(ConfigError, match=told):
        launch_info(environ)


NODES = {
    "gpu3": "gpu3",
    "node[01-04,7],gpu3": "node01",
    "node7,node[01-04]": "node7",
    "rack[2,1]node[003-004]": "rack2node003",
    "node-1.site.org,node-2.site.org": "node-1.site.org",
}


@pytest.mark.parametrize(("nodes", "first"), NODES.items())
def test_the_first_of_a_list_of_nodes(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm is not installed")
@pytest.mark.parametrize("nodes", NODES)
def test_slurm_reads_a_list_of_nodes_so(nodes):
    command = ["scontrol", "show", "hostnames", nodes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"scontrol says nothing here: {done.stderr.strip()}")
    assert done.stdout.split()[0] == first_host(nodes)


@pytest.fixture
def become(monkeypatch):
    """What is executed in this process's place."""
    taken = []
    monkeypatch.setattr("os.execvpe", lambda *given: taken.append(given))
    monkeypatch.setattr(sys, "argv", ["stages/train.py"])
    return taken


def test_a_stage_becomes_its_launcher(become):
    exec_launcher({LAUNCH: "srun --cpu-bind='map cpu' -n 4", "HOME": "/root"})
    command = ["srun", "--cpu-bind=map cpu", "-n", "4", sys.executable, "stages/train.py"]
    assert become == [("srun", command, {"HOME": "/root"})]


def test_torchrun_calls_python_itself(become):
    exec_launcher({LAUNCH: "/opt/bin/torchrun --nproc-per-node=2"})
    command = ["/opt/bin/torchrun", "--nproc-per-node=2", "stages/train.py"]
    assert become == [("/opt/bin/torchrun", command, {})]


@pytest.mark.parametrize("environ", [{}, {LAUNCH: " "}, {LAUNCH: "srun", **STEP}])
def test_a_stage_stays_itself_without_a_launcher_and_within_one(become, environ):
    exec_launcher(environ)
    assert become == []


def test_a_launcher_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=rf"{LAUNCH}: there is no program no-such-launcher here"):
        exec_launcher({LAUNCH: "no-such-launcher -n 2", "PATH": "/usr/bin"})
