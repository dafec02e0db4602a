"""One process per stage."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.errors import BusyError
from dayahead.core.files import write_text


@contextmanager
def stage_lock(stage: str) -> Iterator[None]:
    """Keep a second process of a stage from writing into the same folder.

    A killed `dvc` leaves its stage running, and a rerun starts it a second time.

    Raises:
        BusyError: another process runs the stage here.
    """
    folder = Path(".dayahead")
    folder.mkdir(exist_ok=True)
    holder = folder / f"{stage}.pid"
    try:
        with FileLock(folder / f"{stage}.lock", blocking=False):
            write_text(holder, f"{os.getpid()}")
            yield
    except Timeout:
        pid = holder.read_text(encoding="utf-8") if holder.exists() else "?"
        raise BusyError(
            f"{Path.cwd()}: process {pid} still runs the stage {stage} here; wait for it, or end "
            f"it (`kill {pid}`) and run again"
        ) from None
