"""One trial as a DVC experiment, in a clone of the project."""

import csv
import fcntl
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayahead.config.loading import read_yaml
from dayahead.config.sections import flattened
from dayahead.core.errors import BusyError, TuneError
from dayahead.core.plugins import Kind, plugin_sources
from dayahead.guard import start_guarded
from dayahead.presets import options_of

WINDOWS = Path("results") / "windows.csv"
STARTED = "Running stage 'train'"
"""Text that DVC prints once the outputs of an earlier experiment have been removed."""
WAIT_SECONDS = 90.0
"""Seconds to wait for experiments of a killed process, which stop by themselves."""
_log = logging.getLogger(__name__)
OF_PACKAGES: tuple[tuple[Kind, str], ...] = (
    ("baseline", "model.architecture"),
    ("backbone", "model.architecture"),
    ("backbone", "model.network"),
    ("loss", "loss.name"),
)
"""Settings that may name a model or a loss of another package."""
DVC = (sys.executable, "-m", "dvc")


@dataclass
class RunningExperiment:
    """An experiment that `dvc exp run` computes."""

    name: str
    folder: Path
    """The clone in which it runs."""
    root: Path
    """The project."""
    process: subprocess.Popen[bytes]
    log: Path

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs; after success, fetch its commit."""
        status = self.process.poll()
        if status is not None:
            self._close()
        if status == 0:
            self._fetch()
        return status

    def values(self, metric: str) -> list[float]:
        """Return a metric of each window evaluated so far."""
        if self.process.poll() is None and STARTED not in self.log.read_text(errors="replace"):
            return []  # results/ may still be those of dvc.lock, which DVC checks out first
        try:
            text = (self.folder / WINDOWS).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        lines = text.splitlines()[: text.count("\n")]  # the last row may be incomplete
        return [float(row[metric]) for row in csv.DictReader(lines)]

    def stop(self) -> None:
        """Stop it like Ctrl-C, and wait; its finished fits are cached."""
        self._close()
        self.process.wait()

    def _close(self) -> None:
        """Close the pipe to the guard, which then stops the command."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def error(self) -> str:
        """Return the line of the log that says why it failed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        of_stage = [line for line in lines if line.startswith("error: ")]
        of_traceback = _raised(lines)
        of_dvc = [line for line in lines if line.startswith("ERROR: ")]
        return (of_stage or of_traceback or of_dvc or lines or ["no output"])[-1]

    def _fetch(self) -> None:
        """Fetch the experiment's commit into the project, so that DVC lists it there."""
        [ref] = _references(self.folder, self.name)
        run_git(self.root, "fetch", "--quiet", "--force", str(self.folder), f"{ref}:{ref}")


@dataclass(frozen=True)
class Clone:
    """A clone of the project's last commit, which shares both caches, DVC's and ours, with it."""

    root: Path
    folder: Path
    lock: int
    """File descriptor of the study's lock, which running experiments inherit."""

    def prepare(self, params: Path) -> None:
        """Create the clone again, with the settings of a params.yaml.

        Raises:
            TuneError: the project is no Git repository with a commit.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        run_git(self.root, "clone", "--quiet", str(self.root), str(self.folder))
        for key in ("user.name", "user.email"):
            if value := run_git(self.root, "config", "--default", "", key).strip():
                run_git(self.folder, "config", key, value)
        local = Path(".dvc") / "config.local"
        if (self.root / local).exists():
            # `copy` keeps the file's mode, as it may hold secrets.
            shutil.copy(self.root / local, self.folder / local)
        cache = _output([*DVC, "cache", "dir"], self.root).strip()
        _output([*DVC, "config", "--local", "cache.dir", cache], self.folder)
        self._base.parent.mkdir(exist_ok=True)
        shutil.copyfile(params, self._base)
        if (self.root / "dvc.lock").exists():
            shutil.copyfile(self.root / "dvc.lock", self.folder / "dvc.lock")

    @property
    def _base(self) -> Path:
        return self.folder / ".dvc" / "tmp" / "params.yaml"

    def start(self, name: str, settings: Mapping[str, Any], logs: Path) -> RunningExperiment:
        """Start an experiment, replacing any of this name; its output goes to a file in `logs`."""
        for ref in _references(self.folder, name):
            run_git(self.folder, "update-ref", "-d", ref)
        shutil.copyfile(self._base, self.folder / "params.yaml")
        (self.folder / WINDOWS).unlink(missing_ok=True)
        command = [*DVC, "exp", "run", "--name", name, *options_of(settings)]
        if package_sources({**flattened(read_yaml(self._base)), **settings}):
            command.append("--force")  # DVC does not see the source of other packages
        log = logs / f"{name}.log"
        with log.open("wb") as output:
            shared = {"DAYAHEAD_ROOT": str(self.root), "PYTHONUNBUFFERED": "1"}
            environment = {**os.environ, **shared}
            process = start_guarded(command, self.folder, environment, output, [self.lock])
        return RunningExperiment(name, self.folder, self.root, process, log)


@contextmanager
def prepared_clones(
    root: Path, home: Path, lock: int, n_clones: int, params: Path
) -> Iterator[list[Clone]]:
    """Prepare clones in `home`, with the settings of a params.yaml; an error leaves them there."""
    clones = [Clone(root, home / f"clone-{number}", lock) for number in range(n_clones)]
    for clone in clones:
        clone.prepare(params)
    yield clones
    for folder in home.glob("clone-*"):  # also those of an earlier process with more of them
        shutil.rmtree(folder)


def hold(path: Path) -> int | None:
    """Lock a study and return the lock's descriptor, which processes may inherit.

    None if another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path, what: str) -> Iterator[int]:
    """Hold a lock; wait for it until experiments of a killed process have stopped.

    Raises:
        BusyError: another process holds it, which works on `what`.
    """
    end = time.monotonic() + WAIT_SECONDS
    while (lock := hold(path)) is None:
        if time.monotonic() > end:
            raise BusyError(f"another process works on {what}")
        time.sleep(1)
    try:
        yield lock
    finally:
        os.close(lock)


def warn_of_uncommitted(root: Path, seen: Sequence[str]) -> None:
    """Warn of uncommitted files but those `seen`: clones of the last commit lack them."""
    files = [line[3:] for line in run_git(root, "status", "--porcelain").splitlines()]
    if unseen := [file for file in files if not file.startswith(tuple(seen))]:
        _log.warning("not committed, so no run sees it: %s", ", ".join(unseen))


def package_sources(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return hashes of the source of models and losses of other packages that settings name."""
    return plugin_sources((kind, settings.get(key, "")) for kind, key in OF_PACKAGES)


def _raised(lines: Sequence[str]) -> list[str]:
    """Return the first line of what the last traceback ends with."""
    starts = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    following = lines[starts[-1] + 1 :] if starts else []
    return [line for line in following if line and not line.startswith(" ")][:1]


def _references(folder: Path, name: str) -> list[str]:
    """Return the Git references of experiments of this name; DVC keeps one per base commit."""
    found = run_git(folder, "for-each-ref", "--format=%(refname)", "refs/exps")
    return [ref for ref in found.split() if ref.rpartition("/")[2] == name]


def run_git(folder: Path, *arguments: str) -> str:
    """Return what git prints.

    Raises:
        TuneError: it fails.
    """
    return _output(["git", "-C", str(folder), *arguments], folder if folder.exists() else Path())


def _output(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        line = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise TuneError(f"{folder}: `{' '.join(command)}` failed: {line}")
    return done.stdout
