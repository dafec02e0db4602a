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

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.train.batches import Batch, Sessions, shuffled_rows, sorted_rows
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
        row_numbers = chain.from_iterable(self._row_groups[group][2] for group in order)
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
    def _n_sessions(self) -> int:
        return sum(file.num_rows for file in self._files.values())

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
                current, ahead = ahead, thread.submit(self._read_group, group)
                if current is not None:
                    yield current.result()
            if ahead is not None:
                yield ahead.result()

    def _read_group(self, group: int) -> pa.Table:
        path, number, _ = self._row_groups[group]
        with wrap_read_errors(path), pq.ParquetFile(path) as file:
            table = file.read_row_group(number, columns=list(self.columns))
        return check_numbers(table, path)
