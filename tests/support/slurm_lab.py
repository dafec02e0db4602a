"""A Slurm of several machines on one: each has its own network, name, processes and /run.

Linux namespaces make the machines (root alone may do so); all see the same disk, as on a cluster.
Nothing of it is visible outside, and all of it ends with the process that started it.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

NODES = ("n1", "n2")
PROGRAMS = ("unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd", "sbatch")
SECONDS = 600
"""How long anything may take."""
HOLD = 5
"""Seconds for which Slurm holds a requeued job, which is by default the 120 of `cred_expire`."""
_NAMESPACES = ("--mount", "--net", "--uts", "--pid")
_WITHOUT = ("SLURM", "OMPI_", "PMIX_", "DVC_", "MLFLOW_", "DAYAHEAD_", "PYTHONPATH")
"""Variables that a job must not get from the tests."""

_CONFIG = f"""
ClusterName=lab
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthInfo=cred_expire={HOLD}
StateSaveLocation={{folder}}/state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={{folder}}/slurmctld.log
SlurmdLogFile={{folder}}/slurmd-%h.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=10
KillWait=10
InactiveLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=2
MinJobAge=3600
NodeName={",".join(NODES)} CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_SET_UP = """
hostname {name}
ip link set lo up
mount -t tmpfs -o mode=0755 none /run
mount --bind {folder}/hosts /etc/hosts
mkdir -p /run/munge /run/slurmd
install -m 600 {folder}/munge.key /run/munge/key
"""
_MUNGED = (
    "munged --key-file=/run/munge/key --seed-file=/run/munge/seed --log-file=/run/munge/log "
    "--pid-file=/run/munge/pid"
)


def lacking() -> str | None:
    """Say what this machine lacks for a lab; None if nothing."""
    if os.geteuid() != 0:
        return "Slurm on machines made of Linux namespaces needs root"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=_path())]:
        packages = "apt-get install slurm-wlm munge iproute2 openmpi-bin"
        return f"Slurm is not installed ({', '.join(missing)} missing): {packages}"
    command = ["unshare", *_NAMESPACES, "--fork", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {done.stderr.strip()}" if done.returncode else None


@dataclass
class Machine:
    """A machine for as long as its process 1 runs."""

    process: subprocess.Popen[str]
    pid: int
    """Its process 1, as numbered outside."""

    @classmethod
    def start(cls) -> "Machine":
        """Start a machine without a network. Its process 1 ends when this process does."""
        command = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        process = subprocess.Popen(
            [*command, "bash", "-c", "echo; read -r"],  # bash also collects orphans
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        [first] = psutil.Process(process.pid).children()
        return cls(process, first.pid)

    def inside(self, *command: str, only: str = "") -> list[str]:
        """Return a command that runs another one in this machine, or in its network only."""
        spaces = [only] if only else _NAMESPACES
        return ["nsenter", f"--target={self.pid}", *spaces, "--", *command]

    def stop(self) -> None:
        """Kill all its processes at once."""
        self.process.kill()
        self.process.communicate()


@dataclass
class SlurmLab:
    """A head and its nodes; `folder` holds Slurm's settings and logs."""

    folder: Path
    machines: dict[str, Machine] = field(default_factory=dict)
    n_links: int = 0

    def start(self) -> None:
        """Start the head, Slurm's controller and all nodes."""
        lines = [f"10.77.0.{n} {name}" for n, name in enumerate(("head", *NODES), start=1)]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(_CONFIG.format(folder=self.folder))
        self._boot("head")
        self._sh("head", "ip link add br0 type bridge; ip addr add 10.77.0.1/24 dev br0")
        self._sh("head", f"ip link set br0 up; {_MUNGED}; slurmctld")
        for name in NODES:
            self.start_node(name)
        self.wait_until(lambda: self.run("sinfo -h -t idle -o %D").strip() == f"{len(NODES)}")

    def start_node(self, name: str) -> None:
        """Start a node, for the first time or again."""
        head, node = self.machines["head"], self._boot(name)
        self.n_links += 1
        link = f"link{self.n_links}"
        words = f"ip link add {link} type veth peer name eth0 netns {node.pid}".split()
        subprocess.run(head.inside(*words, only="--net"), check=True)
        self._sh("head", f"ip link set {link} master br0 up")
        address = f"10.77.0.{2 + NODES.index(name)}"
        self._sh(name, f"ip addr add {address}/24 dev eth0; ip link set eth0 up")
        self._sh(name, f"{_MUNGED}; slurmd")

    def stop(self) -> None:
        """End all machines."""
        for machine in self.machines.values():
            machine.stop()

    def _boot(self, name: str) -> Machine:
        machine = self.machines[name] = Machine.start()
        self._sh(name, _SET_UP.format(name=name, folder=self.folder))
        return machine

    def _sh(self, name: str, script: str) -> None:
        self.run(f"sh -ec '{script}'", machine=name, cwd=self.folder)

    def run(
        self, command: str, cwd: Path = Path("/"), machine: str = "head", **environ: str
    ) -> str:
        """Run a command in a machine; return its output."""
        words = ["sh", "-c", f"cd {cwd} && exec {command}"]
        done = subprocess.run(
            self.machines[machine].inside(*words),
            env=self.environment() | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Variables of a user who has just logged in."""
        given = {k: v for k, v in os.environ.items() if not k.startswith(_WITHOUT)}
        return given | {"PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def submit(self, cwd: Path, command: str, **environ: str) -> "Job":
        """Submit what follows `sbatch`."""
        number = self.run(f"sbatch --parsable {command}", cwd, **environ).strip()
        return Job(self, number, cwd)

    def wait_until(self, holds: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.run("scontrol show job") + self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        """Return the ends of Slurm's logs."""
        return "\n".join(path.read_text()[-1500:] for path in self.folder.glob("*.log"))


@dataclass(frozen=True)
class Job:
    """A job of a lab."""

    lab: SlurmLab
    number: str
    cwd: Path

    def task(self, number: int) -> "Job":
        """Return a task of a job array."""
        return Job(self.lab, f"{self.number}_{number}", self.cwd)

    @property
    def state(self) -> Mapping[str, str]:
        """JobState, ExitCode, Restarts ..., as Slurm shows them."""
        shown = self.lab.run(f"scontrol --oneliner show job {self.number}").splitlines()[0]
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        path = self.cwd / f"slurm-{self.number}.out"
        return path.read_text() if path.exists() else ""

    def wait(self, seconds: float = SECONDS) -> str:
        """Wait until the job has ended; return its state, such as COMPLETED or FAILED."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.lab.wait_until(lambda: self.state["JobState"] in ended, seconds)
        return self.state["JobState"]


def _path() -> str:
    """Daemons are in sbin, which is on no user's path."""
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"
