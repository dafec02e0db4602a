"""Whether the other processes of a run are still there, asked all the while beside the work.

What waits for a process that has died on another machine, or for a link that is cut, would wait
for ever: nothing arrives, not even an error. And how long a process may be busy with work of its
own, nobody knows: a main process may hash windows for minutes while the others wait. So a thread of
each process meets those of the others every few seconds, and whoever does not come is lost.
"""

import os
import sys
import time
from datetime import timedelta
from threading import Event, Thread
from types import TracebackType

import torch
import torch.distributed as dist

from dayahead.core.errors import DeadProcessError

PAUSE = 5.0
"""Seconds between two beats."""
SILENCE = timedelta(seconds=60)
"""After which a process is lost."""
POLL = 0.05
"""Seconds between two looks whether a beat has come through."""
GRACE = 10.0
"""Seconds that the work has to find out by itself, before the process is ended."""


class Heartbeat:
    """Ends the work in this process once another is lost; every process enters it together.

    Args:
        who: this process, in messages.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self.lost = ""
        """What to say of it; empty while all are there."""
        self._is_done, self._has_left = Event(), Event()
        self._thread = Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        """Begin to beat."""
        self._group = dist.new_group(backend="gloo", timeout=SILENCE)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until all have done their work; after a failure, beat on until the process ends.

        Raises:
            DeadProcessError: another process is lost.
        """
        if error is None:
            self._is_done.set()
            self._thread.join()
        self._has_left.set()
        if isinstance(error, RuntimeError):  # as torch says that it cannot reach another process
            self._thread.join(PAUSE + GRACE)
        if self.lost and (error is None or isinstance(error, RuntimeError)):
            raise DeadProcessError(self.lost) from None

    def _beat(self) -> None:
        n_done, world = torch.tensor(0), dist.get_world_size()
        try:
            while n_done < world:
                self._is_done.wait(PAUSE)
                n_done = torch.tensor(int(self._is_done.is_set()))
                beat = dist.all_reduce(n_done, group=self._group, async_op=True)
                # Whoever waits within torch when Python ends aborts the process.
                while not beat.is_completed():
                    time.sleep(POLL)
                beat.wait()
        except (RuntimeError, ValueError) as error:  # the latter where this process leaves
            self._end(str(error))

    def _end(self, told: str) -> None:
        if "Timed out" in told:
            found = (
                f"another process has not been heard of for {SILENCE.total_seconds():.0f} s: it "
                f"hangs, or its machine or the network is down"
            )
        else:
            found = f"another process has ended ({_in_short(told)}), and says why itself if it can"
        self.lost = f"{self.who}: {found}; run the same again: what is finished is kept"
        if not self._has_left.wait(GRACE):
            # The work waits within torch, where no exception reaches it.
            sys.stderr.write(f"error: {self.lost}\n")
            sys.stderr.flush()
            os._exit(1)


def _in_short(told: str) -> str:
    """Gloo's message without its place in gloo's source, and without its advice."""
    return told.split("] ", 1)[-1].split(". ")[0]
