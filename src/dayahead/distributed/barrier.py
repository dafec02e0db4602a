"""A barrier of processes on one machine, which wake each other through pipes."""

import os
import select
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from dayahead.distributed.collectives import TIMEOUT

RANK_BYTES = 2
"""Of what a process writes to a pipe."""


class SharedFile(NamedTuple):
    """A file without a name, such as a pipe, that other processes may open too."""

    path: Path
    """A link, as long as its process has the file open."""
    target: Path
    """Where the link leads, which no other file's does."""

    @classmethod
    def of(cls, file: FileIO) -> "SharedFile":
        """Describe a file of this process."""
        path = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        return cls(path, path.readlink())

    def open(self, mode: str) -> FileIO:
        """Open the file once more.

        Raises:
            OSError: this process does not see it, or must not open it.
        """
        if self.path.readlink() != self.target:  # on another machine
            raise FileNotFoundError(self.path)
        return FileIO(self.path, mode)


class Barrier:
    """Has processes wait for each other, unless one has ended.

    Args:
        rank: of this process.
        reader: of this process's pipe.
        pids: process ids by rank.
        pipes: the files to write to by rank.

    Raises:
        OSError: a pipe cannot be opened, or a process does not exist.
    """

    def __init__(
        self, rank: int, reader: FileIO, pids: Sequence[int], pipes: Sequence[SharedFile]
    ) -> None:
        self._own = rank.to_bytes(RANK_BYTES, sys.byteorder)
        self._reader = reader
        os.set_blocking(reader.fileno(), False)
        others = [other for other in range(len(pids)) if other != rank]
        self._writers = [pipes[other].open("w") for other in others]
        ends = [FileIO(os.pidfd_open(pids[other])) for other in others]
        self._ranks = {end.fileno(): other for end, other in zip(ends, others, strict=True)}
        """Of files that become readable when their process ends."""
        self._n_ahead = dict.fromkeys(others, 0)
        """How many barriers each process has reached that this one has not passed."""
        self._ended: set[int] = set()
        self._poll = select.poll()
        for file in (reader, *ends):
            self._poll.register(file, select.POLLIN)
        for file in (reader, *self._writers, *ends):
            finalize(self, file.close)

    def wait(self) -> None:
        """Wait until all processes have called this as often.

        Raises:
            RuntimeError: one has ended before, or does not come.
        """
        deadline = time.monotonic() + TIMEOUT.total_seconds()
        for writer in self._writers:
            with suppress(BrokenPipeError):  # its process has ended, perhaps after this barrier
                writer.write(self._own)
        while missing := [other for other, n in self._n_ahead.items() if n == 0]:
            for other in self._ended.intersection(missing):
                raise RuntimeError(f"process {other} has ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {missing[0]} did not come within {TIMEOUT}")
            self._receive()
        for other in self._n_ahead:
            self._n_ahead[other] -= 1

    def _receive(self) -> None:
        """Wait for a process to come, or to end."""
        for file, _ in self._poll.poll(1000 * TIMEOUT.total_seconds()):
            if file in self._ranks:
                self._ended.add(self._ranks[file])
                self._poll.unregister(file)
        # What a process wrote before it ended is there by now.
        for rank in memoryview(self._reader.read() or b"").cast("H"):
            self._n_ahead[rank] += 1
