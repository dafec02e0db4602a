"""Sending of outboxes: in the background of a stage, and by `dayahead track --sync`."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from filelock import FileLock

from dayahead.core.errors import BusyError, TrackingError, first_line
from dayahead.tracking.outbox import MLFLOW, Outbox, outboxes, warn_once
from dayahead.tracking.sinks import Sink, open_sink

PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
CLOSE_SECONDS = 60.0
"""How long a finished stage waits for its last records to arrive."""


@contextmanager
def background_sync(outbox: Outbox, kinds: Sequence[str] = (MLFLOW,)) -> Iterator[None]:
    """Send a stage's outbox while the block runs, and for at most a minute afterwards.

    Each sink has a thread and a lock of its own, held from before the start on: an outbox that is
    open, but not locked, is that of a killed stage.
    """
    closing = threading.Event()
    locks = {kind: outbox.lock(kind) for kind in kinds}
    for lock in locks.values():
        with suppress(OSError):  # busy, or not writable
            lock.acquire()
    threads = [
        threading.Thread(target=_sync, args=(outbox, kind, lock, closing), daemon=True)
        for kind, lock in locks.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        closing.set()
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))


def _sync(outbox: Outbox, kind: str, lock: FileLock, closing: threading.Event) -> None:
    """Send until closed, and once more then; try a sink that fails less and less often."""
    try:
        sink = open_sink(kind)
    except Exception as error:  # noqa: BLE001
        warn_once(
            f"{first_line(error)}. The stage continues, and its records for {kind} stay in "
            f"{outbox.path.parent} for `python -m dayahead track --sync`"
        )
    else:
        _send_until_closed(sink, outbox, lock, closing)
    lock.release()


def _send_until_closed(
    sink: Sink, outbox: Outbox, lock: FileLock, closing: threading.Event
) -> None:
    others, pause, is_last = None, PAUSE_SECONDS, False
    while not is_last:
        is_last = closing.is_set()
        try:
            others = _others(outbox, sink) if others is None else others
            for other in others:
                with suppress(BusyError, TrackingError):
                    sink.upload_ended(other)
            others = []
            with suppress(OSError):
                if not lock.is_locked:
                    lock.acquire()
            if lock.is_locked:
                sink.upload(outbox)
            pause = PAUSE_SECONDS
        except Exception as error:  # noqa: BLE001
            is_last = closing.is_set()  # a finished stage does not wait for a second failure
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            warn_once(
                f"{sink.name} does not answer ({type(error).__name__}: "
                f"{first_line(error)}); the stage continues, its records stay in "
                f"{outbox.path.parent} and are uploaded by `python -m dayahead track --sync`"
            )
        closing.wait(0 if is_last else pause)


def _others(outbox: Outbox, sink: Sink) -> list[Outbox]:
    """Outboxes of earlier stages of the pipeline run, and of stages that were killed."""
    others = [each for each in outboxes() if each != outbox and sink.kind in each.sinks()]
    return [each for each in others if each.path.parent == outbox.path.parent or each.is_open()]


class SyncReport(NamedTuple):
    """Result of `sync_all`, by stage."""

    stores: list[str]
    uploaded: dict[str, int]
    """Number of records, of stages that had some left; over all sinks."""
    failures: dict[str, str]
    """Why a sink does not have all records."""


def sync_all() -> SyncReport:
    """Send what each sink missed, of all pipeline runs; runs get their true times."""
    report = SyncReport([], {}, {})
    waiting = outboxes()
    for kind in dict.fromkeys(kind for outbox in waiting for kind in outbox.sinks()):
        try:
            sink = open_sink(kind)
        except TrackingError as error:
            report.failures[kind] = first_line(error)
            continue
        report.stores.append(sink.name)
        for outbox in waiting:
            if kind in outbox.sinks():
                _sync_one(sink, outbox, report)
    return report


def _sync_one(sink: Sink, outbox: Outbox, report: SyncReport) -> None:
    stage = f"{outbox.path.parent.name}/{outbox.path.stem}"
    try:
        if n_entries := sink.upload_ended(outbox):
            report.uploaded[stage] = report.uploaded.get(stage, 0) + n_entries
    except Exception as error:  # noqa: BLE001
        where = stage if sink.kind == MLFLOW else f"{stage} to {sink.kind}"
        report.failures[where] = first_line(error)
