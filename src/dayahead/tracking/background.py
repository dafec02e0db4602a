"""Sending beside the stage, and replaying what a store missed."""

import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from filelock import Timeout

from dayahead.core.errors import redacted
from dayahead.core.project import project_root
from dayahead.tracking.journal import Entry, Journal, warn_once
from dayahead.tracking.pipeline_run import all_journals, born_after_boot, journals_of
from dayahead.tracking.store import open_store
from dayahead.tracking.uploader import Progress, Sender

PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
DRAIN_SECONDS = 60.0
"""How long a finished stage waits for its last records to arrive."""


class Shipper(threading.Thread):
    """Tails the journals of an execution; a store that fails is asked ever more rarely."""

    def __init__(self, root: Path, folder: Path) -> None:
        super().__init__(name="tracking", daemon=True)
        self._sender = Sender(open_store(root))
        self._root = root
        self._folder = folder
        self._closing = threading.Event()
        self._pause = PAUSE_SECONDS
        self._has_given_up = False
        """Whether the store failed when the stage was done already."""

    def run(self) -> None:
        """Send until closed, and once more then."""
        self._attempt(orphans=True)
        while not self._closing.wait(self._pause):
            self._attempt()
        if not self._has_given_up:
            self._attempt()

    def close(self) -> None:
        """Send the rest, for as long as that may take a stage that is done."""
        self._closing.set()
        self.join(DRAIN_SECONDS)

    def _attempt(self, orphans: bool = False) -> None:
        try:
            journals = journals_of(self._folder)
            for journal in journals + (end_orphans(self._root) if orphans else []):
                send_unless_busy(self._sender, journal)
            self._pause = PAUSE_SECONDS
        except Exception as error:  # noqa: BLE001
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            self._has_given_up = self._closing.is_set()
            warn_once(
                f"tracking: {self._sender.name} does not answer ({type(error).__name__}: "
                f"{_first_line(error)}); the stage goes on, its records are kept in "
                f"{self._folder} and sent later by `python -m dayahead track --sync`"
            )


def send_unless_busy(sender: Sender, journal: Journal) -> int:
    """Send a journal, or leave it to the process that is sending it now."""
    try:
        return sender.send(journal)
    except Timeout:
        return 0


def end_orphans(root: Path) -> list[Journal]:
    """Write the end into journals whose process was killed; return those."""
    orphans = []
    for journal in all_journals(root):
        turns = [entry for _, entry in journal.read() if entry["kind"] in ("start", "end")]
        if turns[-1]["kind"] == "start" and not _is_alive(turns[-1]):
            *_, (_, last) = journal.read()
            journal.append("end", status="KILLED", at=last["at"])
            orphans.append(journal)
    return orphans


def _is_alive(start: Entry) -> bool:
    if start["host"] != socket.gethostname():
        return True  # not ours to judge
    try:
        return bool(abs(born_after_boot(psutil.Process(start["pid"])) - start["born"]) < 1)
    except psutil.NoSuchProcess:
        return False


@dataclass
class SyncReport:
    """What a replay did."""

    store: str
    n_entries: int = 0
    runs: list[str] = field(default_factory=list)
    """Journals that had something to send."""
    left: list[str] = field(default_factory=list)
    """Journals still not whole in any store, and why."""


def sync_all(root: Path | None = None) -> SyncReport:
    """Send what the store missed, whatever run it is of; runs get their true times.

    Journals that no store has go to the present one; those begun in another are reported.
    """
    root = root or project_root()
    end_orphans(root)
    sender = Sender(open_store(root))
    report = SyncReport(sender.name)
    for journal in all_journals(root):
        label = f"{journal.path.parent.name}/{journal.stage}"
        try:
            n_sent = sender.send(journal)
        except Timeout:
            report.left.append(f"{label}: being sent by its own process")
            continue
        except Exception as error:  # noqa: BLE001
            report.left.append(f"{label}: {_first_line(error)}")
            continue
        report.n_entries += n_sent
        report.runs += [label] * bool(n_sent)
        progress = Progress.of(journal)
        if n_sent == 0 and progress.offset < journal.path.stat().st_size:
            report.left.append(f"{label}: begun in {progress.store}; set MLFLOW_TRACKING_URI to it")
    return report


def _first_line(error: Exception) -> str:
    return redacted(str(error).strip().partition("\n")[0])
