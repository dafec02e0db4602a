"""One process at a time at the same work."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.errors import BusyError
from dayahead.core.files import write_text


@contextmanager
def one_at_a_time(stage: str) -> Iterator[None]:
    """Keep a second run of a stage out of the folder in which a first still writes.

    A killed `dvc` leaves its stage running, and starts it again beside itself.

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
            f"it (`kill {pid}`), and try again"
        ) from None
