"""The pipeline's stages, run as the user runs them, and how they fail."""

import os
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dayahead.config.loading import read_yaml
from dayahead.config.sections import Settings, flattened, merged
from dayahead.core.errors import DataError, DayaheadError
from dayahead.core.files import write_json
from dayahead.core.project import cache_root, stage_failure
from dayahead.guard import start_guarded

STAGES = ("download", "preprocess", "train", "aggregate")
RETRY = 75
"""Exit status of `tools/alone` if another run is at work: EX_TEMPFAIL of sysexits.h."""
_LINKED = ("src", "stages", "datasets", "data", "dvc.yaml", "requirements.txt")
"""Files and folders that a challenger's folder shares with the project, by links."""


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

    def challenge(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> Path:
        """Train with other settings, aside from the project's files; return the results.

        Fits and evaluations come from the project's cache, so a new window costs one fit.

        Args:
            name: name of the run's folder.
            changes: settings that differ from those of params.yaml.

        Raises:
            StageError: the stage failed.
        """
        folder = challenge_folder() / name
        folder.mkdir(parents=True, exist_ok=True)
        params = challenger_params(self.root / "params.yaml", changes)
        for linked in self._linked(params["model"]["pretrained_items"]):
            link = folder / linked
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)  # the project may have been moved since
            link.symlink_to(self.root / linked)
        write_json(folder / "params.yaml", params)
        # DVC_ROOT names the project whose cache is used (see core/project.py).
        environment = {"DVC_ROOT": str(cache_root().parent), "PYTHONPATH": "src"}
        status = _run([sys.executable, "stages/train.py"], folder, environment)
        if status:
            raise StageError(f"{folder}: {self._reason(folder)}")
        return folder / "results"

    def _linked(self, pretrained_items: str | None) -> list[str]:
        """Return what a challenger's folder needs of the project's files."""
        modules = [path.name for path in self.root.glob("*.py")]  # a model of the project's own
        vectors = Path(pretrained_items or "")  # or the name of vectors of the data set's items
        is_linked = {*vectors.parts[:1]} <= {*_LINKED}
        is_outside = vectors.is_absolute() or ".." in vectors.parts
        is_own = not (is_linked or is_outside) and (self.root / vectors).is_file()
        return [*_LINKED, *modules, *([str(vectors)] if is_own else [])]

    def keep_challenges(self, names: Collection[str]) -> None:
        """Remove the folders of all challenges but these."""
        for folder in challenge_folder().glob("*"):
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)

    def _dvc(self, *words: str) -> None:
        script = self.root / "tools" / "alone"
        alone = [str(script)] if script.exists() and shutil.which("flock") else []
        self._forget_failures()
        repro = [sys.executable, "-P", str(Path(__file__).with_name("repro.py"))]
        status = _run([*alone, *repro, *words], self.root, {})
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

    def _reason(self, folder: Path) -> str:
        path = stage_failure(folder, "train")
        if path.exists():
            return f"train: {read_yaml(path)['message']}"
        return "the stage failed; its messages are above"


def challenge_folder() -> Path:
    """Return the parent folder of those in which challengers are trained during their trials."""
    return cache_root() / "nightly"


def challenger_params(path: Path, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return params.yaml with a challenger's settings, for its runs alone."""
    apart: Settings = {
        "tracking.log_model": False,
        "training.fit_last": False,
        "profile.window": None,
        "nightly.challengers": {},
    }
    return merged(read_yaml(path), flattened(changes) | apart)


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run a command to its end; its output goes to stderr. It ends with this process."""
    # dvc.yaml calls `python`, and a scheduler's PATH rarely has that of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path, **environment}
    process = start_guarded(command, folder, env, sys.stderr)
    assert process.stdin is not None
    try:
        # Not wait(): if polars is imported (by MLflow), wait() continues after a SIGINT.
        while (status := process.poll()) is None:
            time.sleep(0.1)
        return status
    finally:
        process.stdin.close()
        process.wait()
