"""The folders of the project and of its cache, and the lock of a stage."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.errors import BusyError, ConfigError, DayaheadError
from dayahead.core.files import write_json, write_text
from dayahead.core.phases import FOLDER, recorded
from dayahead.core.redaction import redacted


def project_root() -> Path:
    """Return the main project's folder, also from its subfolders and from DVC's copies.

    DVC names it in `DVC_ROOT` to the stages of `--temp` and `--queue`. A clone sets `DAYAHEAD_ROOT`
    to the project whose cache and tracking store it shares.
    """
    if named := os.environ.get("DAYAHEAD_ROOT") or os.environ.get("DVC_ROOT"):
        return Path(named).absolute()
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), here)


def cache_root() -> Path:
    """Return the folder of the cache, which all experiments of a project share."""
    return project_root() / ".dayahead"


def stage_failure(root: Path, stage: str) -> Path:
    """Return the file in which a failed stage leaves its error; a started stage removes it."""
    return root / ".dayahead" / f"{stage}.failure.json"


@contextmanager
def _failure_written(path: Path) -> Iterator[None]:
    """Write the error that ends a stage, because DVC does not pass on its exit status."""
    path.unlink(missing_ok=True)
    try:
        yield
    except DayaheadError as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        write_json(path, {"kinds": kinds, "message": redacted(str(error))})
        raise


def _check_history() -> None:
    """Check, in a copy that DVC made for --temp or --queue, that it can keep the experiment.

    In a shallow clone it cannot write the experiment's commit, and ends with 0 all the same.

    Raises:
        ConfigError: the project is a shallow clone.
    """
    project = os.environ.get("DVC_ROOT")
    if not project or Path(project).resolve() == Path.cwd():
        return
    command = ["git", "-C", project, "rev-parse", "--is-shallow-repository"]
    if subprocess.run(command, capture_output=True, text=True, check=False).stdout == "true\n":
        raise ConfigError(
            f"{project}: a shallow Git clone, in which DVC keeps no experiment of --temp or "
            f"--queue; run `git fetch --unshallow` and again"
        )


@contextmanager
def stage_lock(stage: str) -> Iterator[None]:
    """Prevent a second process of a stage from writing to the same folder; time the stage.

    Its phases are written to results/phases/. A killed `dvc` leaves its stage running, and a rerun
    starts it a second time.

    Raises:
        BusyError: another process runs the stage here.
        ConfigError: DVC would lose the experiment.
    """
    _check_history()
    folder = Path(".dayahead")
    folder.mkdir(exist_ok=True)
    holder = folder / f"{stage}.pid"
    try:
        with FileLock(folder / f"{stage}.lock", blocking=False):
            write_text(holder, f"{os.getpid()}")
            failure, times = stage_failure(Path(), stage), FOLDER / f"{stage}.csv"
            with _failure_written(failure), recorded(times):
                yield
    except Timeout:
        pid = holder.read_text(encoding="utf-8") if holder.exists() else "?"
        raise BusyError(
            f"{Path.cwd()}: process {pid} still runs the stage {stage} here; wait for it, or end "
            f"it (`kill {pid}`) and run again"
        ) from None
