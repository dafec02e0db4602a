"""A small study as one process of a launcher, and helpers to start such processes.

python launched_study.py FOLDER [SILENCE]: reads windows from FOLDER and writes results there;
SILENCE is the heartbeat's timeout in seconds.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from dayahead.core.errors import exit_with_message
from dayahead.distributed import process_group
from dayahead.outputs.tables import read_windows
from dayahead.train.stage import train
from support.commands import PROGRAMS
from support.outputs import without_times
from support.tiny_settings import evaluated_windows, ranks_of, tiny_study
from support.window_folders import bytes_in, markov_days, write_window_folder

SECTIONS = {"training": {"epochs": 2}, "evaluation": {"split": "test"}}
N_DAYS = 6
SCRIPT = Path(__file__)


def write_host(folder: Path) -> Path:
    """Write what a machine needs before a run: the windows."""
    write_window_folder(folder / "windows", markov_days(N_DAYS, 61, n_items=30))
    return folder


def run_study(folder: Path, processes: int | str) -> None:
    """Train in a folder, beside its windows."""
    more = {"compute": {"processes": processes}, "machine": {"keep_fits": "all"}}
    train(tiny_study(folder / "windows", folder / "out", SECTIONS | more))


def left_in(folder: Path) -> dict[str, bytes]:
    """Bytes of all output files but the timings."""
    return without_times(bytes_in(folder / "out"))


def assert_equal(one: Path, several: Path) -> None:
    """Check what must not depend on the number of processes."""
    assert len(evaluated_windows(one / "out")) == N_DAYS - 1
    for window in evaluated_windows(one / "out"):
        same = ranks_of(one / "out", window) == ranks_of(several / "out", window)
        assert same.mean() >= 0.999
    rows = [read_windows(f / "out" / "results" / "windows.csv", [1, 5]) for f in (one, several)]
    for metric in rows[0][0].metrics:
        aod, other = (sum(row.metrics[metric] for row in table) / len(table) for table in rows)
        assert abs(aod - other) <= 5e-4


@dataclass
class Ranks:
    """Running processes of a run."""

    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, command: list[str], cwd: Path, **environ: str) -> subprocess.Popen[str]:
        """Start a rank, or a launcher of several, in a process group of its own."""
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=clean_environment() | environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def said(self, timeout: float = 240) -> list[str]:
        """Wait for all; return the output of each."""
        return [process.communicate(timeout=timeout)[0] for process in self.processes]

    @property
    def statuses(self) -> list[int]:
        """Exit statuses."""
        return [process.returncode for process in self.processes]


@contextmanager
def ranks() -> Iterator[Ranks]:
    """Processes that do not outlive a test."""
    started = Ranks()
    try:
        yield started
    finally:
        for process in started.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            process.wait()


def clean_environment() -> dict[str, str]:
    """This process's environment without any launcher's variables."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMIX_"))}
    folders = [str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return ours | {"PYTHONPATH": os.pathsep.join(folders), "PATH": PROGRAMS, "OMP_NUM_THREADS": "1"}


def torchrun_variables(rank: int, port: str, address: str = "localhost") -> dict[str, str]:
    """What torchrun sets for one of two processes."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }


def errors_in(said: str) -> list[str]:
    """The error lines of an output."""
    return [line for line in said.splitlines() if line.startswith("error: ")]


def wait_for(text: str, process: subprocess.Popen[str]) -> None:
    """Read a process's output until a line contains this text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError("".join(lines))


def study_command(*more: object) -> list[str]:
    """Command that runs the study in the working directory."""
    return [sys.executable, str(SCRIPT), ".", *map(str, more)]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if len(sys.argv) > 2:
        process_group.HEARTBEAT_TIMEOUT = timedelta(seconds=float(sys.argv[2]))
        process_group.INTERVAL, process_group.GRACE = 0.5, 2.0
    run_study(Path(sys.argv[1]), "auto")


if __name__ == "__main__":
    with exit_with_message():
        main()
