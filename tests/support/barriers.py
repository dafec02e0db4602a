"""Barriers of ranks that are threads of one process."""

import os
from collections.abc import Sequence
from io import FileIO

from dayahead.distributed.barrier import Barrier, SharedFile


def new_pipe() -> list[FileIO]:
    """Return both ends of a pipe: to read and to write."""
    return [FileIO(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True)]


def barriers(pids: Sequence[int]) -> list[Barrier]:
    """Return the barrier of each rank, all in this process; a rank ends with the process `pid`."""
    pipes = [new_pipe() for _ in pids]
    files = [SharedFile.of(writer) for _, writer in pipes]
    made = [Barrier(rank, reader, pids, files) for rank, (reader, _) in enumerate(pipes)]
    for _, writer in pipes:
        writer.close()
    return made
