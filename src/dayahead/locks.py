"""One process at a time at the same work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.errors import BusyError


@contextmanager
def one_at_a_time(stage: str) -> Iterator[None]:
    """Keep a second run of a stage out of the folder in which a first still writes.

    A killed `dvc` leaves its stage running, and starts it again beside itself.

    Raises:
        BusyError: another process runs the stage here.
    """
    lock = FileLock(Path(".dayahead") / f"{stage}.lock", blocking=False)
    Path(lock.lock_file).parent.mkdir(exist_ok=True)
    try:
        with lock:
            yield
    except Timeout:
        raise BusyError(
            f"{Path.cwd()}: another process still runs the stage {stage} here; wait for it, or "
            f"end it (`pkill -f stages/{stage}.py`), and try again"
        ) from None
