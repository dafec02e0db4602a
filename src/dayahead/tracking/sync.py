"""Sending outboxes: while a stage runs, and by `dayahead track --sync`."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from dayahead.core.errors import BusyError, TrackingError, first_line
from dayahead.tracking.outbox import MLFLOW, Outbox, outboxes, warn_once
from dayahead.tracking.sinks import Sink, open_sink
from dayahead.tracking.system_metrics import sampled

PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 60.0


def send(outbox: Outbox, kinds: Sequence[str], over: threading.Event) -> None:
    """Send a stage's outbox until the stage is over, and once more then; a thread per sink."""
    closing = threading.Event()
    threads = [
        threading.Thread(target=_send_to, args=(outbox, kind, closing), daemon=True)
        for kind in kinds
    ]
    for thread in threads:
        thread.start()
    with sampled(outbox):
        over.wait()
    with suppress(BusyError, OSError):
        outbox.end_if_killed()
    closing.set()
    for thread in threads:
        thread.join()


def _send_to(outbox: Outbox, kind: str, closing: threading.Event) -> None:
    try:
        sink = open_sink(kind)
    except Exception as error:  # noqa: BLE001
        warn_once(
            f"{first_line(error)}. The stage continues, and its records for {kind} stay in "
            f"{outbox.path.parent} for `python -m dayahead track --sync`"
        )
    else:
        _send_until_closed(sink, outbox, closing)


def _send_until_closed(sink: Sink, outbox: Outbox, closing: threading.Event) -> None:
    """Send repeatedly until the stage is over; after failures, at growing intervals."""
    lock = outbox.lock(sink.kind)
    others, pause, is_last = None, PAUSE_SECONDS, False
    while not is_last:
        is_last = closing.is_set()
        try:
            others = _others(outbox, sink) if others is None else others
            for other in others:
                # A KeyError or TypeError is a damaged entry, which `sync_all` reports.
                with suppress(BusyError, TrackingError, KeyError, TypeError):
                    sink.upload_ended(other)
            others = []
            with suppress(OSError):  # busy, or not writable
                if not lock.is_locked:
                    lock.acquire(timeout=LONGEST_PAUSE_SECONDS if is_last else 0)
            if lock.is_locked:
                sink.upload(outbox)
            pause = PAUSE_SECONDS
        except Exception as error:  # noqa: BLE001
            is_last = closing.is_set()  # no further attempt once the stage has finished
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            line = first_line(error)
            why = (
                line  # it says what to do
                if isinstance(error, TrackingError)
                else f"{sink.name} does not answer ({type(error).__name__}: {line})"
            )
            warn_once(
                f"{why}; the stage continues, its records stay in {outbox.path.parent} and are "
                f"uploaded by `python -m dayahead track --sync`"
            )
        closing.wait(0 if is_last else pause)
    lock.release()


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
