"""Collectives of processes on one machine, through memory that they share instead of sockets.

In the midst of a step gloo takes half a millisecond for a barrier and ten for the sum of 12 MB.
Later versions of gloo share memory too, but not that of torch 2.13, and torch's wheels come without
MPI.
"""

import os
import uuid
from contextlib import suppress
from io import FileIO
from itertools import accumulate
from mmap import mmap
from typing import Optional
from weakref import finalize

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from dayahead.core.phases import phase
from dayahead.distributed.barrier import Barrier, SharedFile
from dayahead.distributed.collectives import Collectives, Sizes

SMALL, PIECE = 2**12, 2**22
"""Values that every process sums, and that each sums a part of, at once."""
HEADER = 2**16
"""Bytes at the beginning of a buffer, enough for a number per process of any machine."""


class SharedMemory(Collectives):
    """Collectives through buffers that all processes map, two of each process.

    A collective writes to one of its process's buffers, waits for the others and reads theirs. The
    next one uses the other buffers, so it overwrites nothing that slower processes still read; they
    have read it before they join the one after that.

    Methods raise RuntimeError if another process has ended, as those of torch do.
    """

    def __init__(self, rank: int, turns: list[list["_Buffer"]], barrier: Barrier) -> None:
        super().__init__()
        self.rank, self.world_size = rank, len(turns[0])
        self._others = [other for other in range(self.world_size) if other != rank]
        self._barrier = barrier
        self._turns = turns
        """Buffers by rank, first those of the next collective."""

    @classmethod
    def create(cls, group: dist.ProcessGroup | None = None) -> Optional["SharedMemory"]:
        """Share memory with the processes of a group, by default all of the run; a collective.

        Returns None on GPUs, and where processes cannot open each other's files: on several
        machines, as different users, or in containers of their own.
        """
        if dist.get_backend(group) != dist.Backend.GLOO:
            return None
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        reader, writer = (FileIO(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
        with _new_file() as first, _new_file() as second, writer:
            own = os.getpid(), [SharedFile.of(each) for each in (first, second, writer)]
            every = [own] * world_size
            dist.all_gather_object(every, own, group)
            pids, files_of = zip(*every, strict=True)
            *buffers, pipes = zip(*files_of, strict=True)
            memory = None
            with suppress(OSError):
                turns = [[_Buffer(file.open("r+")) for file in files] for files in buffers]
                memory = cls(rank, turns, Barrier(rank, reader, pids, pipes))
            n_sharing = torch.tensor(int(memory is not None))
            dist.all_reduce(n_sharing, group=group)  # before that nobody closes what others open
        return memory if n_sharing == world_size else None

    def all_reduce(self, values: Tensor) -> None:
        """Sum contiguous values, as many on every rank, over all ranks, in place."""
        values = values.view(-1)
        if len(values) < SMALL:
            every = torch.stack(self._exchange(values))
            torch.sum(every, 0, dtype=values.dtype, out=values)
            return
        for piece in torch.split(values, PIECE):
            parts = piece.tensor_split(self.world_size)
            own = parts[self.rank]
            received = self._exchange(piece, [len(part) for part in parts])
            for other in self._others:
                own += received[other]
            sums = self._exchange(own)
            for other in self._others:
                parts[other].copy_(sums[other])

    def start_all_reduce(self, values: Tensor) -> Future[Tensor]:
        """Sum values over all ranks, in place; return them."""
        with phase("collectives"):
            self.all_reduce(values)
        sums = Future[Tensor]()
        sums.set_result(values)
        return sums

    def all_gather(self, values: Tensor, n_of: Sizes | None = None) -> tuple[Tensor, Sizes]:
        """Concatenate the values of all ranks; return them, and how many are of each rank."""
        return _concatenated(self._exchange(values))

    def all_to_all(
        self, values: Tensor, sent: Sizes, received: Sizes | None = None
    ) -> tuple[Tensor, Sizes]:
        """Send the first `sent[0]` values to rank 0, and so on.

        Returns:
            The values received, and how many are of each rank.
        """
        return _concatenated(self._exchange(values, sent))

    def _exchange(self, values: Tensor, sent: Sizes | None = None) -> list[Tensor]:
        """Return what each rank has for this one; the next collective but one overwrites it.

        Args:
            values: of this rank.
            sent: how many of them are for each rank, one rank after the other; None: all for all.
        """
        buffers, _ = self._turns
        self._turns.reverse()
        if sent is None:
            ends = [len(values)] * self.world_size
            starts = [0] * self.world_size
        else:
            ends = list(accumulate(sent))
            starts = [0, *ends[:-1]]
        buffers[self.rank].write(values, starts, ends)
        self._barrier.wait()
        return [buffer.read(self.rank, values) for buffer in buffers]


def _concatenated(parts: list[Tensor]) -> tuple[Tensor, Sizes]:
    return torch.cat(parts), [len(part) for part in parts]


def _new_file() -> FileIO:
    """Create a file in memory, which vanishes when the last process that has opened it ends."""
    file = FileIO(os.memfd_create(f"dayahead-{uuid.uuid4().hex}"), "r+")
    file.truncate(HEADER)
    return file


class _Buffer:
    """A file in memory: which of the values are for each rank, then the values."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        finalize(self, file.close)
        self._map()

    def write(self, values: Tensor, starts: Sizes, ends: Sizes) -> None:
        """Write values, of which those from `starts` to `ends` are for each rank."""
        end = HEADER + values.nbytes
        if end > len(self._bytes):
            self._file.truncate(2 * end)  # pages that nobody touches take no memory
            self._map()
        self._ranges[: len(starts)] = list(zip(starts, ends, strict=True))
        self._bytes[HEADER:end].view(values.dtype).view(values.shape).copy_(values)

    def read(self, rank: int, like: Tensor) -> Tensor:
        """Return the values for a rank, of this dtype and shape, without copying them."""
        if os.fstat(self._file.fileno()).st_size > len(self._bytes):
            self._map()
        value_bytes = like.shape[1:].numel() * like.itemsize
        begin, end = (HEADER + value_bytes * int(row) for row in self._ranges[rank])
        return self._bytes[begin:end].view(like.dtype).view(-1, *like.shape[1:])

    def _map(self) -> None:
        memory = mmap(self._file.fileno(), 0)
        self._ranges = np.frombuffer(memory, np.int64, HEADER // 8).reshape(-1, 2)
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)
