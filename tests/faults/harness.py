"""A project on real clicks that a test may disturb, and the run that it is compared with.

A test prepares training (`project.clear`), disturbs it, and asserts that one more run ends with
the bytes of an undisturbed one (`project.assert_completes`). The fixtures are in conftest.py.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from dayahead.core.cache import Cache
from support.commands import PROGRAMS
from support.git_projects import commit_all
from support.project_copy import change_params, copy_project
from support.window_folders import bytes_in

DAYS = ("2017-10-01", "2017-10-02")
SETTINGS = {
    "dataset": "g1",
    "window": {"unit": "hour", "first": "2017-10-02T00", "last": "2017-10-02T11"},
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2, "dropout": 0.1},
    "training": {"epochs": 1, "batch_size": 256, "precision": "float32"},
    "evaluation": {"split": "all"},
    "compute": {"processes": 1, "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
"""Twelve hours of G1, and a model that is fitted on them in half a minute."""
N_WINDOWS = 12
TRAIN = "python stages/train.py"

Outcome = tuple[int, str]
"""Exit status and output of a command."""
BUSY = "still runs the stage train"
RESTARTED = "all are started again"
OUT_OF_MEMORY = r"error: .*memory.*training\.batch_size.*finished work is kept"


@dataclass(frozen=True)
class Reference:
    """Outputs of an undisturbed run, and its seconds."""

    outputs: dict[str, bytes]
    seconds: float


@dataclass(frozen=True)
class Project:
    """A folder in which the stages run as a user's do."""

    folder: Path
    environment: dict[str, str]

    @classmethod
    def create(cls, folder: Path, clicks: Path) -> "Project":
        """Copy the project, with its windows built and nothing trained."""
        copy_project(folder, SETTINGS)
        own_clicks = folder / "clicks" / "g1-news"
        own_clicks.mkdir(parents=True)
        for day in DAYS:
            name = f"clicks-{day}.csv.gz"
            (own_clicks / name).symlink_to(clicks / "g1-news" / name)
        environment = {
            **os.environ,
            "PATH": PROGRAMS,
            "PYTHONPATH": "src",
            "DAYAHEAD_DATA": str(folder / "clicks"),
            "DVC_SITE_CACHE_DIR": str(folder / ".dvc" / "site"),
            "OMP_NUM_THREADS": "1",
        }
        created = cls(folder, environment)
        commit_all(folder)
        created.run_successfully("dvc repro preprocess")
        return created

    @property
    def windows(self) -> Path:
        return self.folder / "data" / "windows"

    @property
    def cache(self) -> Path:
        return self.folder / ".dayahead"

    def cached(self, kind: str) -> Cache:
        """Cached work of one kind: fits, evaluations, ..."""
        return Cache(self.cache / kind)

    # Commands.

    def start(self, command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            command.split(),
            cwd=self.folder,
            env=self.environment | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A shell's background job ignores SIGINT, and so would the stage.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, command: str, **environment: str) -> Outcome:
        """Run a command to its end."""
        return wait(self.start(command, **environment))

    def run_successfully(self, command: str, **environment: str) -> str:
        """Run a command that must succeed, and return its output."""
        status, output = self.run(command, **environment)
        assert status == 0, output
        return output

    def stage(self, name: str, **environment: str) -> Outcome:
        """Run one stage without DVC."""
        return self.run(f"python stages/{name}.py", **environment)

    def start_training(
        self, command: str = TRAIN, n_evaluated: int = 0, **environment: str
    ) -> subprocess.Popen[str]:
        """Start to train and wait until a fit, and so many evaluations, are cached."""
        process = self.start(command, **environment)
        while process.poll() is None and not (
            self.cached("fits").keys() and len(self.cached("evaluations").keys()) >= n_evaluated
        ):
            time.sleep(0.05)
        return process

    def kill_training(self, n_evaluated: int = 0) -> None:
        """Train until a fit, and so many evaluations, are cached, and no further."""
        kill(self.start_training(n_evaluated=n_evaluated))

    # State.

    def clear(self) -> None:
        """Remove all that training leaves, from the cache too."""
        for name in ("results", "models", ".dayahead/fits", ".dayahead/evaluations"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def empty_cache(self, kind: str) -> None:
        """Let the next run find no finished work of a kind."""
        folder = self.cache / kind
        folder.rename(folder.with_name(f"{kind}-{time.monotonic_ns()}"))

    @contextmanager
    def changed(self, section: str, **values: object) -> Iterator[None]:
        """Change params.yaml for the length of a block."""
        with restored(self.folder / "params.yaml"):
            change_params(self.folder, {section: values})
            yield

    def outputs(self) -> dict[str, bytes]:
        """All outputs of training and averaging but clock times and the report that shows them."""
        results = bytes_in(self.folder / "results")
        compared = ("aod.json", "windows.csv", "ranks/")
        kept = {name: content for name, content in results.items() if name.startswith(compared)}
        return kept | bytes_in(self.folder / "models")

    # Expectations.

    def reference(self) -> Reference:
        """Run undisturbed, from nothing."""
        self.clear()
        start = time.perf_counter()
        self.run_successfully(TRAIN)
        seconds = time.perf_counter() - start
        self.run_successfully("python stages/aggregate.py")
        return Reference(self.outputs(), seconds)

    def assert_completes(self, reference: Reference) -> None:
        """Run once more and compare."""
        self.run_successfully(TRAIN)
        self.run_successfully("python stages/aggregate.py")
        assert self.outputs() == reference.outputs


def wait(process: subprocess.Popen[str], timeout: float = 1200) -> Outcome:
    """Wait for a process to end by itself."""
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def assert_error(outcome: Outcome, pattern: str) -> None:
    """Expect one clear error: a status, a line that matches, and no traceback."""
    status, output = outcome
    assert status != 0
    assert "Traceback" not in output, output
    assert re.search(pattern, output), output


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Processes that a stage started to share its work, in the order of their start."""

    def is_worker(child: psutil.Process) -> bool:
        try:
            return "spawn_main" in " ".join(child.cmdline())
        except psutil.Error:  # it has ended
            return False

    return list(filter(is_worker, psutil.Process(process.pid).children(recursive=True)))


def damage(path: Path, seed: int) -> None:
    """Flip a bit, or cut the end off (every third seed), in a copy: hard links stay whole."""
    stream = random.Random(seed)
    content = bytearray(path.read_bytes())
    index = stream.randrange(len(content))
    content[index] ^= 1 << stream.randrange(8)
    replace(path, content[:index] if seed % 3 == 0 else content)


def replace(path: Path, content: bytes) -> None:
    """Write a file of its own: hard links stay whole."""
    path.unlink()
    path.write_bytes(content)


@contextmanager
def restored(path: Path) -> Iterator[bytes]:
    """Give a file its present content back after a block."""
    content = path.read_bytes()
    try:
        yield content
    finally:
        replace(path, content)


def kill_within(start: Callable[[], subprocess.Popen[str]], seed: int, *seconds: float) -> None:
    """Start something and kill it at a moment between two, drawn by the seed."""
    process = start()
    time.sleep(random.Random(seed).uniform(*seconds))
    kill(process)
