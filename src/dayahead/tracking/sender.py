"""`python -m dayahead.tracking.sender OUTBOX SINK...`: the process that sends a stage's records.

MLflow, whose import takes seconds, is thus loaded in parallel with torch, and takes no time of the
interpreter that trains. The stage holds the process's stdin: when that is closed, because the stage
has finished or was killed, the remaining records are sent and the process ends.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dayahead.core.errors import exit_with_message
from dayahead.tracking.outbox import Outbox, never_raising, warn_once

CLOSE_SECONDS = 60
"""Seconds that a finished stage waits for its last records to be sent."""


@contextmanager
def background_sender(outbox: Outbox, kinds: Sequence[str]) -> Iterator[None]:
    """Send a stage's outbox while the block runs, and for at most a minute afterwards."""
    sender = None
    with outbox.running():
        with never_raising("the records stay in the outbox"):
            sender = _start(outbox, kinds) if kinds else None
        try:
            yield
        finally:
            if sender is not None:
                _close(sender, outbox)


def _start(outbox: Outbox, kinds: Sequence[str]) -> subprocess.Popen[bytes]:
    # -P: files of the project's folder must not shadow Python's modules.
    command = [sys.executable, "-P", "-m", __name__, str(outbox.path), *kinds]
    # In its own process group: Ctrl-C is meant for the stage, which then closes stdin.
    return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)


def _close(sender: subprocess.Popen[bytes], outbox: Outbox) -> None:
    if sender.stdin is not None:
        sender.stdin.close()
    try:
        status = sender.wait(CLOSE_SECONDS)
        what = f"the process that sends the records of {outbox.path.stem} ended with {status}"
    except subprocess.TimeoutExpired:
        sender.kill()
        status = sender.wait()
        what = f"records of {outbox.path.stem} are left after {CLOSE_SECONDS} seconds"
    if status:
        warn_once(f"{what}; `python -m dayahead track --sync` sends what is left")


def main() -> None:
    """Send until stdin is closed; record the end of a stage that was killed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # from systemd or Slurm, meant for the stage
    outbox, kinds = Outbox(Path(sys.argv[1])), sys.argv[2:]
    over = threading.Event()
    threading.Thread(target=_wait_for_stage, args=(over,), daemon=True).start()
    with never_raising("the records stay in the outbox"):
        from dayahead.tracking.sync import send

        send(outbox, kinds, over)


def _wait_for_stage(over: threading.Event) -> None:
    while os.read(0, 1):
        pass
    signal.alarm(CLOSE_SECONDS + 5)  # if the stage was killed, nobody else ends this process
    over.set()


if __name__ == "__main__":
    with exit_with_message():
        main()
