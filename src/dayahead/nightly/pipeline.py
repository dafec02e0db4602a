"""The pipeline's stages, run as the user runs them, and how they fail."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.config.loading import read_yaml
from dayahead.core.errors import DataError, DayaheadError
from dayahead.core.project import stage_failure
from dayahead.guard import start_guarded

STAGES = ("download", "preprocess", "train", "aggregate")
RETRY = 75
"""Exit status of `tools/alone` if another run is at work: EX_TEMPFAIL of sysexits.h."""


class StageError(DayaheadError):
    """A stage failed for a reason that neither waiting nor other data will cure."""


class RetryLaterError(DayaheadError):
    """A source is out of reach, or another run is at work: the scheduler tries again."""


class RefusedDataError(DataError):
    """The new data break a limit or contradict earlier data."""


@dataclass(frozen=True)
class Pipeline:
    """The DVC project at `root`."""

    root: Path

    def update_data(self) -> None:
        """Fetch what is new, and write the windows that are complete.

        Raises:
            RetryLaterError: a source is out of reach, or another run is at work.
            RefusedDataError: quality limits are broken, or rows arrived for a finished window.
            StageError: anything else.
        """
        # Forced, because DVC does not see whether a remote source has changed.
        self._dvc("--force", "--single-item", "download")
        self._dvc("preprocess")

    def train(self) -> None:
        """Fit on the new windows, evaluate, write the report.

        Raises:
            RetryLaterError: another run is at work.
            StageError: a stage failed.
        """
        self._dvc()

    def _dvc(self, *words: str) -> None:
        script = self.root / "tools" / "alone"
        alone = [str(script)] if script.exists() and shutil.which("flock") else []
        self._forget_failures()
        repro = [sys.executable, "-P", str(Path(__file__).with_name("repro.py"))]
        status = _run([*alone, *repro, *words], self.root)
        if status:
            self._raise(status)

    def _forget_failures(self) -> None:
        """Remove the errors of earlier runs.

        Raises:
            RetryLaterError: a stage is running, perhaps started by a `dvc` without `tools/alone`.
        """
        for stage in STAGES:
            failure = stage_failure(self.root, stage)
            failure.parent.mkdir(exist_ok=True)
            try:
                # A running stage holds this lock.
                with FileLock(failure.with_name(f"{stage}.lock"), blocking=False):
                    failure.unlink(missing_ok=True)
            except Timeout:
                raise RetryLaterError(
                    f"{self.root}: another run is at work here, in the stage {stage}; try again "
                    f"later"
                ) from None

    def _raise(self, status: int) -> None:
        if status == RETRY:
            raise RetryLaterError(f"{self.root}: another run is at work here; try again later")
        for stage in STAGES:
            path = stage_failure(self.root, stage)
            if path.exists():
                failure = read_yaml(path)
                kind, message = failure["kinds"], failure["message"]
                if "UnreachableError" in kind:
                    raise RetryLaterError(message)
                is_data = stage == "download" and "SourceError" in kind
                if is_data or not {"LateRowsError", "DefectsError"}.isdisjoint(kind):
                    raise RefusedDataError(message)
                raise StageError(f"{stage}: {message}")
        raise StageError(f"dvc repro ended with status {status}; its messages are above")


def _run(command: Sequence[str], folder: Path) -> int:
    """Run a command to its end; its output goes to stderr. It ends with this process."""
    # dvc.yaml calls `python`, and a scheduler's PATH rarely has that of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    process = start_guarded(command, folder, {**os.environ, "PATH": path}, sys.stderr)
    assert process.stdin is not None
    try:
        # Not wait(): if polars is imported (by MLflow), wait() continues after a SIGINT.
        while (status := process.poll()) is None:
            time.sleep(0.1)
        return status
    finally:
        process.stdin.close()
        process.wait()
