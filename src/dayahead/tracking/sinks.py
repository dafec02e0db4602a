"""Sinks: the trackers to which an outbox is sent; each records how much it has received.

A sink that fails, or whose package is missing, delays neither the stage nor the other sinks.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from filelock import Timeout

from dayahead.core.errors import BusyError, TrackingError
from dayahead.core.files import read_json, write_json
from dayahead.tracking.outbox import MLFLOW, Outbox

SINKS: Final = {
    MLFLOW: "dayahead.tracking.uploader:Uploader",
    "tensorboard": "dayahead.tracking.tensorboard_sink:TensorBoardSink",
    "wandb": "dayahead.tracking.wandb_sink:WandbSink",
}
"""Module and class by the name that `tracking.sinks` lists."""


class Progress(NamedTuple):
    """How much of an outbox a sink has received, and where; kept in a file next to the outbox."""

    store: str = ""
    run: str = ""
    parent: str = ""
    offset: int = 0
    size: int = 0
    """Bytes written, for a sink that appends to a file."""

    @staticmethod
    def path(outbox: Outbox, kind: str = MLFLOW) -> Path:
        """Return the file next to the outbox."""
        return outbox.path.with_suffix(f".{kind}.json")

    @classmethod
    def of(cls, outbox: Outbox, kind: str = MLFLOW) -> "Progress":
        """Read the file; if it is missing or damaged, everything is sent again."""
        try:
            return cls(**read_json(cls.path(outbox, kind)))
        except (OSError, ValueError, TypeError):
            return cls()


class Sink(ABC):
    """A tracker. Sending is idempotent, so an interrupted one is simply repeated."""

    kind: ClassVar[str]
    """Its name in `tracking.sinks`."""
    is_live: ClassVar[bool] = True
    """Whether it takes records while the stage runs."""
    name: str
    """Address to which its records go, without credentials."""

    @abstractmethod
    def send(self, outbox: Outbox, progress: Progress) -> Iterator[Progress]:
        """Send what follows `progress`; yield the progress whenever something has arrived."""

    def upload(self, outbox: Outbox) -> int:
        """Send the entries that the sink lacks and return their number; `outbox` is locked.

        Raises:
            Exception: the tracker fails; earlier entries have arrived.
            TrackingError: the first entries are in another store, which should get the others.
        """
        if not self.is_live and outbox.is_open():
            return 0
        before = progress = Progress.of(outbox, self.kind)
        if next(outbox.read(before.offset), None) is None:
            return 0
        if before.offset and before.store != self.name:
            raise TrackingError(
                f"its first records are in {before.store}; set MLFLOW_TRACKING_URI to it"
            )
        for progress in self.send(outbox, before):
            write_json(Progress.path(outbox, self.kind), progress._asdict())
        _remove_sent_files(outbox)
        offsets = [offset for offset, _ in outbox.read(before.offset)]
        return sum(offset <= progress.offset for offset in offsets)

    def upload_ended(self, outbox: Outbox) -> int:
        """Send the outbox of a stage that has ended; if it was killed, record its end first.

        Raises:
            BusyError: the stage is running, or another process sends its outbox.
        """
        lock = outbox.lock(self.kind)
        try:
            lock.acquire()
        except Timeout:
            raise BusyError("being uploaded by another process") from None
        try:
            outbox.end_if_killed()
            return self.upload(outbox)
        finally:
            lock.release()


def open_sink(kind: str) -> Sink:
    """Open a sink by its name.

    Raises:
        TrackingError: no such sink, or its package is not installed.
    """
    if kind not in SINKS:
        raise TrackingError(f"{kind}: no such tracker; expected one of {', '.join(SINKS)}")
    module, _, name = SINKS[kind].partition(":")
    try:
        sink: Sink = getattr(import_module(module), name)()
    except ImportError as error:
        raise TrackingError(
            f"{kind} cannot be imported ({error}); install it as docs/tracking.md says, or remove "
            f"it from tracking.sinks"
        ) from None
    return sink


def _remove_sent_files(outbox: Outbox) -> None:
    """Remove copied files that every sink of the outbox has received."""
    sent = min(Progress.of(outbox, kind).offset for kind in outbox.sinks())
    for offset, entry in outbox.read():
        if offset <= sent and (file := entry.get("file")):
            shutil.rmtree((outbox.path.parent / file).parent, ignore_errors=True)
