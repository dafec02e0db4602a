"""Batches of a window streamed from its files, for windows larger than memory.

Every process reads the whole stream and keeps its own rows of each global batch. If each read
different row groups, processes would have unequal numbers of steps, and batches would depend on
their number. Reading is many times faster than training, and a thread reads ahead.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.model.model import Padded
from dayahead.train.batches import Batch, LoadedBatches, Sessions, shuffled_rows, sorted_rows
from dayahead.windows.folder import check_numbers, wrap_read_errors

BUFFER = 65_536
"""Sessions that are shuffled together, unless one batch is more."""


@dataclass(frozen=True)
class StreamedBatches:
    """Batches cut from a buffer that moves over a window's files.

    Sessions are shuffled within the buffer. A window that fits into it gives the batches that
    `LoadedBatches` gives. Memory holds the buffer and a few row groups, which must be small
    compared with it.

    Raises:
        WindowError: at the first use, where a file is missing or damaged, or lacks a column.
    """

    paths: tuple[Path, ...]
    """Files with disjoint sessions."""
    columns: tuple[str, ...]
    """List columns wanted; the lists of one session are equally long."""
    batch_size: int
    """Rows of a global batch, over all processes."""
    rank: Rank
    seed: int | None = None
    """None: the files' own order, the shortest sessions of each buffer first (for evaluation)."""
    buffer: int = BUFFER
    """Sessions in the buffer, rounded up to whole batches."""
    wanted: NDArray[np.bool_] | None = None
    """Which sessions are in the pass, by row; None: all."""
    sessions_of: Callable[[pa.Table], Sessions] = Sessions.from_table
    """Makes sessions of the columns of a buffer."""

    @property
    def n_steps(self) -> int:
        """Global batches in the pass, the same on every process."""
        return -(-self._n_sessions // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yield this process's rows, batch by batch; `sessions` are rows counted over all files."""
        order = list(range(len(self._row_groups)))
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(len(order), generator=generator).tolist()
        row_numbers = chain.from_iterable(self._rows_of(group).tolist() for group in order)
        for number, sessions in enumerate(self._buffers(order)):
            file_rows = torch.from_numpy(np.fromiter(row_numbers, np.int64, count=len(sessions)))
            # In file order: batches must not depend on the order of row groups in a buffer.
            in_order = file_rows.argsort()
            lengths = sessions.lengths[in_order]
            if self.seed is None:
                batches = sorted_rows(lengths, self.batch_size)
            else:
                batches = shuffled_rows(lengths, self.batch_size, self.seed + number)
            for rows in batches:
                batch = sessions.gather(in_order[rows], self.rank)
                is_real = batch.sessions >= 0
                numbers = torch.where(is_real, file_rows[batch.sessions.clamp(min=0)], -1)
                yield replace(batch, sessions=numbers)

    def unsplit(self) -> "StreamedBatches":
        """Return the pass of a process that takes all rows of every batch."""
        return replace(self, rank=Rank(index=0, world_size=1))

    def among(self, wanted: Int[Tensor, " k"]) -> "StreamedBatches":
        """Return a pass over the wanted rows alone."""
        is_wanted = np.zeros(self._n_rows, bool)
        is_wanted[wanted.numpy()] = True
        return replace(self, wanted=is_wanted)

    def counted(self) -> "CountedStream":
        """Return the pass, whose sessions can be read again."""
        return CountedStream(self)

    def read_rows(self, rows: Int[Tensor, " n"]) -> Sessions:
        """Read one session or several by their rows, in the order given."""
        order = rows.argsort()
        ascending = rows[order].numpy()
        bounds = np.append([group[2].start for group in self._row_groups], self._n_rows)
        places = np.searchsorted(ascending, bounds)
        tables = [
            self._read_group(group).take(pa.array(ascending[start:end] - bounds[group]))
            for group, (start, end) in enumerate(pairwise(places.tolist()))
            if end > start
        ]
        return self.sessions_of(pa.concat_tables(tables).take(pa.array(order.argsort().numpy())))

    @cached_property
    def _files(self) -> dict[Path, pq.FileMetaData]:
        """Files that hold sessions."""
        found = {}
        for path in self.paths:
            with wrap_read_errors(path):
                metadata = pq.read_metadata(path)
            missing = sorted(set(self.columns) - set(metadata.schema.to_arrow_schema().names))
            if missing:
                names = ", ".join(missing)
                raise WindowError(f"{path}: no column {names}; run `dvc repro -f preprocess`")
            if metadata.num_rows:
                found[path] = metadata
        return found

    @cached_property
    def _row_groups(self) -> list[tuple[Path, int, range]]:
        """File, number in it, and row numbers counted over all files, of each row group."""
        groups = [
            (path, number, file.row_group(number).num_rows)
            for path, file in self._files.items()
            for number in range(file.num_row_groups)
        ]
        bounds = pairwise(accumulate((size for *_, size in groups), initial=0))
        return [
            (path, number, range(*rows))
            for (path, number, _), rows in zip(groups, bounds, strict=True)
        ]

    @property
    def _n_rows(self) -> int:
        """Sessions in the files."""
        return sum(file.num_rows for file in self._files.values())

    @property
    def _n_sessions(self) -> int:
        """Sessions in the pass."""
        return self._n_rows if self.wanted is None else int(self.wanted.sum())

    def _rows_of(self, group: int) -> NDArray[np.int64]:
        """Rows of a group's sessions that are in the pass."""
        rows = np.array(self._row_groups[group][2])
        return rows if self.wanted is None else rows[self.wanted[rows]]

    def _buffers(self, order: list[int]) -> Iterator[Sessions]:
        """Read the row groups and split the stream into buffers of whole batches."""
        size = -(-self.buffer // self.batch_size) * self.batch_size
        waiting: list[pa.Table] = []
        for table in self._read(order):
            waiting.append(table)
            while sum(map(len, waiting)) >= size:
                rows = pa.concat_tables(waiting)
                yield self.sessions_of(rows.slice(0, size))
                waiting = [rows.slice(size)]
        if any(map(len, waiting)):
            yield self.sessions_of(pa.concat_tables(waiting))

    def _read(self, order: list[int]) -> Iterator[pa.Table]:
        """Read one row group while the one before it is used."""
        with ThreadPoolExecutor(1) as thread:
            ahead: Future[pa.Table] | None = None
            for group in order:
                current, ahead = ahead, thread.submit(self._read_wanted, group)
                if current is not None:
                    yield current.result()
            if ahead is not None:
                yield ahead.result()

    def _read_wanted(self, group: int) -> pa.Table:
        table = self._read_group(group)
        if self.wanted is None:
            return table
        rows = self._row_groups[group][2]
        return table.filter(pa.array(self.wanted[rows.start : rows.stop]))

    def _read_group(self, group: int) -> pa.Table:
        path, number, _ = self._row_groups[group]
        with wrap_read_errors(path), pq.ParquetFile(path) as file:
            table = file.read_row_group(number, columns=list(self.columns))
        return check_numbers(table, path)


class CountedStream:
    """A pass over a window's files that remembers which sessions it has yielded.

    Args:
        batches: the pass of a process that takes all rows.
    """

    def __init__(self, batches: StreamedBatches) -> None:
        self.batches = batches
        self.every_row = torch.zeros(0, dtype=torch.int64)
        """[n] rows of the sessions in the order of the pass; none before its end."""
        self._held: tuple[NDArray[np.int64], NDArray[np.int64], Sessions] | None = None
        """Places of some sessions in the pass, ascending, the row of each in these, and these."""

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches."""
        rows = [self.every_row[:0]]
        for batch in self.batches:
            rows.append(batch.sessions)
            yield batch
        self.every_row = torch.cat(rows)

    def read(self, places: NDArray[np.int64], is_held: bool) -> Iterator[Padded]:
        """Yield some sessions, in the order given, and hold them for `gather` if `is_held`."""
        if not len(places):
            return
        sessions = self.batches.read_rows(self.every_row[places])
        if is_held:
            order = places.argsort()
            self._held = places[order], order, sessions
        for rows in torch.split(torch.arange(len(places)), self.batches.batch_size):
            batch = sessions.gather(rows, self.batches.rank)
            yield batch.columns, batch.lengths

    def gather(self, places: Int[Tensor, " n"]) -> Batch:
        """Return some of the sessions held, padded; where none are, read them."""
        if self._held is None:
            sessions = self.batches.read_rows(self.every_row[places])
            return sessions.gather(torch.arange(len(places)), self.batches.rank)
        held, rows, sessions = self._held
        found = rows[np.searchsorted(held, places.numpy())]
        return sessions.gather(torch.from_numpy(found), self.batches.rank)


Batches = LoadedBatches | StreamedBatches
"""One pass over a window's sessions, as training and evaluation use it."""
CountedBatches = LoadedBatches | CountedStream
"""A pass whose sessions can be read again after it, by their place in it."""
