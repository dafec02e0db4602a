"""The outbox of a stage: its records, which are on disk before they are sent to any server."""

import fcntl
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import psutil
from filelock import FileLock

from dayahead.core.cache import link_or_copy
from dayahead.core.errors import BusyError
from dayahead.core.files import encodable
from dayahead.core.project import cache_root
from dayahead.core.redaction import redacted, utf8

Entry = dict[str, Any]
MLFLOW = "mlflow"
"""The sink of an outbox that names none."""
PIPELINE_RUN = "DAYAHEAD_PIPELINE_RUN"
"""Environment variable with the pipeline run's key, for stages that `dvc` starts by a launcher."""
NIGHTS_DVC = Path(__file__).parents[1] / "nightly" / "repro.py"
"""The script with which `dayahead nightly` runs DVC."""


@cache
def warn_once(message: str) -> None:
    """Log a warning without credentials, once per process."""
    logging.getLogger(__name__).warning("tracking: %s", redacted(message))


@contextmanager
def never_raising(consequence: str) -> Iterator[None]:
    """Log exceptions as a warning: tracking must never stop a stage."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warn_once(f"{consequence}: {error!r}")


@dataclass(frozen=True)
class Outbox:
    """An append-only file of JSON lines and, next to it, the files that its entries name."""

    path: Path
    """.dayahead/outbox/<pipeline run>/<stage>.jsonl"""

    def append(self, kind: str, **fields: object) -> None:
        """Append an entry and flush it to disk; several processes may append at once.

        Raises:
            OSError: the file cannot be written.
        """
        entry = {"kind": kind, "at": time.time_ns() // 1_000_000, **fields}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Also a newline before it: a killed writer may have left half a line.
            file.write(f"\n{json.dumps(encodable(entry))}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self, offset: int = 0) -> Iterator[tuple[int, Entry]]:
        """Yield (byte offset after it, entry) from an offset on; damaged lines are skipped."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                if (entry := _parsed(line)) is not None:
                    yield offset, entry

    def entries(self, *kinds: str) -> list[Entry]:
        """Return every entry of these kinds."""
        return [entry for _, entry in self.read() if entry["kind"] in kinds]

    def start(self) -> Entry | None:
        """Return the entry that names the run, or None."""
        return next((entry for _, entry in self.read() if entry["kind"] == "start"), None)

    def is_open(self) -> bool:
        """Whether the last start has no end: the stage is running, or it was killed."""
        marks = self.entries("start", "end")
        return bool(marks) and marks[-1]["kind"] == "start"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock the outbox while a stage writes it: one that is open, but not locked, was killed.

        If that is impossible (the folder cannot be written), the block runs without the lock.
        """
        with ExitStack() as held:
            with suppress(OSError):
                fcntl.flock(held.enter_context(self._lock_file()), fcntl.LOCK_SH)
            yield

    def end_if_killed(self) -> None:
        """Record the end of a stage that was killed.

        Raises:
            BusyError: the stage is running.
        """
        with self._lock_file() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError("the stage is running") from None
            if self.is_open():
                *_, (_, last) = self.read()
                self.append("end", status="KILLED", error="killed", at=last["at"])

    def _lock_file(self) -> IO[str]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.with_suffix(".lock").open("a")

    def sinks(self) -> tuple[str, ...]:
        """Return the trackers that get the entries: those of the newest start."""
        starts = self.entries("start")
        return tuple(starts[-1].get("sinks", (MLFLOW,))) if starts else ()

    def lock(self, kind: str = MLFLOW) -> FileLock:
        """Return the lock of the process that sends the outbox to a sink.

        Acquiring it raises filelock.Timeout at once where another process holds it.
        """
        return FileLock(self.path.with_suffix(f".{kind}.lock"), timeout=0, thread_local=False)

    def add_file(self, source: Path) -> str:
        """Link or copy a file or folder; return its path relative to the outbox's folder.

        The original may be gone when it is uploaded: DVC deletes the workspaces of --temp runs.
        """
        target = self.new_folder() / utf8(source.name)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=_link)
        else:
            _link(str(source), str(target))
        return str(target.relative_to(self.path.parent))

    def new_folder(self) -> Path:
        """Create a folder for a file that an entry will name."""
        folder = self.path.with_suffix(".files") / uuid.uuid4().hex[:12]
        folder.mkdir(parents=True)
        return folder


def _parsed(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "kind" in entry else None


def _link(source: str, target: str) -> None:
    # Outputs are replaced by new files, never rewritten in place, so a hard link keeps the content.
    link_or_copy(Path(source).resolve(), Path(target))


def outboxes() -> list[Outbox]:
    """Return the outboxes of all pipeline runs in the order in which the stages started."""
    found = map(Outbox, (cache_root() / "outbox").glob("*/*.jsonl"))
    started = [(start["at"], outbox.path) for outbox in found if (start := outbox.start())]
    return [Outbox(path) for _, path in sorted(started)]


def outbox_for(stage: str, fingerprint: str | None) -> Outbox:
    """Return the outbox to continue, or a new one.

    A stage that is started again with the same inputs continues its outbox. With other inputs (an
    experiment's name used a second time) it starts a new pipeline run, in a folder of its own.
    """
    first = folder = cache_root() / "outbox" / pipeline_run_key()
    n = 2
    while (following := first.with_name(f"{first.name}-{n}")).exists():
        folder, n = following, n + 1
    outbox = Outbox(folder / f"{stage}.jsonl")
    start = outbox.start()
    is_same = start is None or start.get("fingerprint") == fingerprint
    return outbox if is_same else Outbox(following / f"{stage}.jsonl")


def pipeline_run_key() -> str:
    """Return a name shared by the stages of one pipeline run, and by no other."""
    if key := os.environ.get(PIPELINE_RUN):
        return key
    if name := os.environ.get("DVC_EXP_NAME"):
        baseline = os.environ.get("DVC_EXP_BASELINE_REV", "")
        return re.sub(r"[^\w.-]", "_", f"{name}-{baseline[:7]}".rstrip("-"))
    process = psutil.Process()
    dvc = next((parent for parent in process.parents() if _is_dvc(parent)), None)
    kind, process = ("dvc", dvc) if dvc else ("alone", process)
    # A pid may be reused: add the start, in seconds since boot, which setting the clock keeps.
    return f"{kind}-{process.pid}-{process.create_time() - psutil.boot_time():.2f}"


def _is_dvc(process: psutil.Process) -> bool:
    try:
        # dvc repro; python /bin/dvc repro; python -m dvc repro; a night's python -P repro.py
        words = process.cmdline()[:3]
    except psutil.Error:
        return False
    return any(Path(word).name == "dvc" or Path(word) == NIGHTS_DVC for word in words)
