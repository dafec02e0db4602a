"""Outboxes that are no longer needed, and how they are removed."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import Timeout

from dayahead.core.project import cache_root
from dayahead.tracking.outbox import Outbox
from dayahead.tracking.sinks import Progress


@dataclass
class PrunedOutboxes:
    """What was done with the outboxes."""

    removed: list[Path] = field(default_factory=list)
    undelivered: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    """Those that stay, each with the trackers that lack records."""
    running: list[Path] = field(default_factory=list)
    """Those in use by a stage or a sender."""


def prune_outboxes(before: float, *, undelivered: bool = False) -> PrunedOutboxes:
    """Remove outboxes last written before that Unix time, with the files that they copied.

    One whose records a tracker still lacks stays, unless `undelivered`.
    """
    found = PrunedOutboxes()
    for outbox in _all_outboxes():
        if _last_written(outbox) >= before:
            continue
        with ExitStack() as held:
            if not _is_held(outbox, held):
                found.running.append(outbox.path)
            elif (lacking := missing_in(outbox)) and not undelivered:
                found.undelivered[outbox.path] = lacking
            else:
                _remove(outbox)
                found.removed.append(outbox.path)
    return found


def missing_in(outbox: Outbox) -> tuple[str, ...]:
    """Return the trackers that have not received all records."""
    offsets = {kind: Progress.of(outbox, kind).offset for kind in outbox.sinks()}
    return tuple(kind for kind, offset in offsets.items() if next(outbox.read(offset), None))


def _all_outboxes() -> Iterator[Outbox]:
    """Yield the outboxes of all pipeline runs, also those with only copied files left."""
    for folder in sorted((cache_root() / "outbox").glob("*/")):
        paths = [*folder.glob("*.jsonl"), *folder.glob("*.files")]
        yield from map(Outbox, sorted({path.with_suffix(".jsonl") for path in paths}))


def _last_written(outbox: Outbox) -> float:
    paths = [outbox.path, *outbox.path.with_suffix(".files").glob("*")]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0)


def _is_held(outbox: Outbox, held: ExitStack) -> bool:
    """Lock the outbox against stages and senders; return whether that was possible."""
    try:
        lock = held.enter_context(outbox.path.with_suffix(".lock").open("a"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for kind in outbox.sinks():
            held.enter_context(outbox.lock(kind))
    except (BlockingIOError, Timeout):
        return False
    return True


def _remove(outbox: Outbox) -> None:
    shutil.rmtree(outbox.path.with_suffix(".files"), ignore_errors=True)
    for path in outbox.path.parent.glob(f"{outbox.path.stem}.*"):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # other stages of the run are still in it
        outbox.path.parent.rmdir()
