"""Batches of a window streamed from its files, for windows larger than memory.

Every process reads the whole stream and keeps its own rows of each global batch. If each read
different row groups, as merlin-dataloader offers, processes would have unequal numbers of steps,
and batches would depend on their number. Reading is many times faster than training.

Merlin's shuffle uses numpy's global generator in its reading thread, where it cannot be seeded.
Therefore the order of row groups is drawn here, and rows are shuffled in a buffer.

Merlin and Dask take a second to import, so only runs that stream import them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.train.batches import Batch, Sessions, shuffled_rows, sorted_rows
from dayahead.windows.folder import check_finite, wrap_read_errors

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
    """Files with disjoint sessions, read in the natural order of their paths."""
    columns: tuple[str, ...]
    """List columns wanted; the lists of one session are equally long."""
    batch_size: int
    """Rows of a global batch, over all processes."""
    rank: Rank
    seed: int | None = None
    """None: the files' own order, the shortest sessions of each buffer first (for evaluation)."""
    buffer: int = BUFFER
    """Sessions in the buffer, rounded up to whole batches."""

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
        row_numbers = chain.from_iterable(self._row_groups[group] for group in order)
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
    def _files(self) -> dict[str, pq.FileMetaData]:
        """Files that hold sessions, in the order in which Merlin numbers their row groups."""
        from dask.utils import natural_sort_key

        found = {}
        for path in sorted(map(str, self.paths), key=natural_sort_key):
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
    def _row_groups(self) -> list[range]:
        """Row numbers of each row group, counted over all files."""
        groups = [
            file.row_group(i) for file in self._files.values() for i in range(file.num_row_groups)
        ]
        bounds = accumulate((group.num_rows for group in groups), initial=0)
        return [range(start, end) for start, end in pairwise(bounds)]

    @property
    def _n_sessions(self) -> int:
        return sum(file.num_rows for file in self._files.values())

    def _buffers(self, order: list[int]) -> Iterator[Sessions]:
        """Read the row groups and split the stream into buffers of whole batches."""
        from merlin.dataloader.torch import Loader
        from merlin.io import Dataset
        from merlin.schema import ColumnSchema, Schema

        if not self._files:
            return
        size = -(-self.buffer // self.batch_size) * self.batch_size
        with wrap_read_errors(", ".join(self._files)):
            # One partition per row group, whatever memory the machine has.
            schema = Schema(
                [ColumnSchema(name, is_list=True, is_ragged=True) for name in self.columns]
            )
            options = {"engine": "parquet", "row_groups_per_part": 1, "cpu": True}
            dataset = Dataset(list(self._files), schema=schema, **options)
            loader = Loader(dataset, batch_size=size)
            # Replaces the order of row groups that Merlin would draw.
            loader.indices = np.array(order)
            with loader:
                # Merlin's reader can wait forever when asked for more than there is.
                for values, _ in islice(loader, -(-self._n_sessions // size)):
                    sessions = _sessions(values, self.columns)
                    for name, numbers in sessions.columns.items():
                        check_finite(numbers.numpy(), name, ", ".join(self._files))
                    yield sessions


def _sessions(values: dict[str, Tensor], columns: tuple[str, ...]) -> Sessions:
    flat = {name: values[f"{name}__values"] for name in columns}
    typed = {name: v.float() if v.is_floating_point() else v.long() for name, v in flat.items()}
    return Sessions(typed, values[f"{columns[0]}__offsets"])
