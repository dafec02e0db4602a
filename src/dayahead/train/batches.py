"""Sessions of a window in memory, and the batches that every process makes of them.

Batches are global: their order and content depend on the seed alone, and each process takes its
own rows of each batch. So one process or eight make the same steps on the same sessions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.core.columns import IS_PAST, ITEM_ID, MARKS, PAST_PREFIX
from dayahead.core.errors import WindowError
from dayahead.core.ragged import cut
from dayahead.distributed.process import Rank, to_device
from dayahead.model.inputs import without_later
from dayahead.model.model import Padded

CELLS = 1 << 18
"""Cells of a padded column that are counted at once, unless one batch has more."""


@dataclass(frozen=True)
class Batch:
    """One process's rows of a global batch, right-padded to the global batch's longest session."""

    columns: dict[str, Int[Tensor, "B L"] | Float[Tensor, "B L"]]
    lengths: Int[Tensor, " B"]
    """Events per session, including its past; 0 for an empty row, which counts for nothing."""
    sessions: Int[Tensor, " B"]
    """Row of the session in its window's file; -1 for an empty row."""
    rank: Rank
    global_items: Int[Tensor, "G L"]
    """Item ids of the whole global batch, the empty rows included; the same on every process."""
    global_past: Int[Tensor, " G"]
    """Number of events at the start of each row that are the user's past."""
    global_marks: dict[str, Tensor] = field(default_factory=dict)
    """Those of MARKS that the columns have, of the whole global batch [G, L]."""

    @property
    def n_global(self) -> int:
        """Rows of the global batch, the empty ones included."""
        return len(self.global_items)

    def to(self, device: torch.device) -> "Batch":
        """Move what a model reads to a device."""
        return replace(
            self,
            columns={name: to_device(each, device) for name, each in self.columns.items()},
            lengths=to_device(self.lengths, device),
        )

    def without_empty_rows(self) -> "Batch":
        """Drop the empty rows, which give all processes equally many."""
        is_real = self.lengths > 0
        return replace(
            self,
            columns={name: values[is_real] for name, values in self.columns.items()},
            lengths=self.lengths[is_real],
            sessions=self.sessions[is_real],
        )


@dataclass(frozen=True)
class Sessions:
    """Sessions as flat columns and offsets: session s holds the events offsets[s]:offsets[s+1].

    Where past events are read too, they come first, and the column IS_PAST marks them.
    """

    columns: dict[str, Tensor]
    """Flat columns of N events each: int64 (times in microseconds) or float32."""
    offsets: Int[Tensor, " S1"]

    def __post_init__(self) -> None:
        """Check that all columns have as many events.

        Raises:
            WindowError: a column has another number of events than the offsets say.
        """
        for name, values in self.columns.items():
            if len(values) != self.offsets[-1]:
                raise WindowError(
                    f"column {name}: expected {int(self.offsets[-1])} events, as in the other "
                    f"lists of these sessions, found {len(values)}; run `dvc repro -f preprocess`"
                )

    @classmethod
    def from_table(cls, table: pa.Table, past_length: int = 0) -> "Sessions":
        """Build from every list column of a window's table.

        With `past_length`, that many of the newest past events, from the columns bef_<name>, come
        before each session's own.
        """
        arrays = {name: table[name].combine_chunks() for name in table.column_names}
        lists = {name: array for name, array in arrays.items() if pa.types.is_list(array.type)}
        bef = {PAST_PREFIX + name: name for name in lists} if past_length else {}
        own = cls._of_lists({name: each for name, each in lists.items() if name not in bef})
        if not past_length:
            return own
        past = cls._of_lists({bef[name]: each for name, each in lists.items() if name in bef})
        return own.after(past, past_length)

    @classmethod
    def _of_lists(cls, lists: Mapping[str, pa.ListArray]) -> "Sessions":
        offsets = next(iter(lists.values())).offsets.to_numpy()
        columns = {}
        for name, array in lists.items():
            dtype = pa.float32() if pa.types.is_floating(array.type.value_type) else pa.int64()
            values = array.flatten().cast(dtype).to_numpy(zero_copy_only=False)
            # Arrow's memory is read-only, which torch tensors cannot be.
            columns[name] = torch.from_numpy(values.copy())
        # In a slice of an array the first offset is not 0.
        return cls(columns, torch.from_numpy(offsets - offsets[0]).long())

    def after(self, past: "Sessions", length: int) -> "Sessions":
        """Prepend the last `length` events of each row of `past` to this one's rows."""
        n_past = past.lengths.clamp(max=length)
        lengths = n_past + self.lengths
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        rows = torch.arange(len(self)).repeat_interleave(lengths)  # [N]
        steps = torch.arange(len(rows)) - offsets[rows]
        is_past = steps < n_past[rows]
        # Past events count from the end of their row, a session's own from its start.
        origin = torch.where(is_past, past.offsets[rows + 1], past.offsets[-1] + self.offsets[rows])
        events = origin + steps - n_past[rows]
        columns = {
            name: torch.cat([past.columns[name], values])[events]
            for name, values in self.columns.items()
        }
        return Sessions(columns | {IS_PAST: is_past.long()}, offsets)

    def without_later(self, known: Mapping[str, int]) -> "Sessions":
        """Read values beyond the first `known[column]` as unknown, except a session's own items."""
        columns = without_later(self.columns, known, keeps_own_items=True)
        return replace(self, columns=columns)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Int[Tensor, " S"]:
        """Events per session."""
        return self.offsets.diff()

    def gather(self, rows: Int[Tensor, " n"], rank: Rank) -> Batch:
        """Return this process's rows of the global batch `rows`, padded."""
        longest = int(self.lengths[rows].max())
        # Empty rows (-1) are appended, so that all processes have equally many.
        every = torch.nn.functional.pad(rows, (0, -len(rows) % rank.world_size), value=-1)
        # Every world_size-th row: rows are sorted by length, so all processes get similar work.
        own = every[rank.index :: rank.world_size]
        columns, lengths = self._padded(tuple(self.columns), own, longest)
        # With one process, its columns already are the whole batch.
        names = tuple(n for n in (ITEM_ID, IS_PAST, *MARKS) if n in self.columns)
        whole = columns if rank.world_size == 1 else self._padded(names, every, longest)[0]
        items = whole[ITEM_ID]
        past = whole[IS_PAST].sum(1) if IS_PAST in whole else items.new_zeros(len(items))
        marks = {name: whole[name] for name in MARKS if name in whole}
        return Batch(columns, lengths, own, rank, items, past, marks)

    def _padded(
        self, names: tuple[str, ...], rows: Int[Tensor, " B"], longest: int
    ) -> tuple[dict[str, Tensor], Int[Tensor, " B"]]:
        """Return columns [B, longest] of some rows, and the rows' lengths; row -1 is empty."""
        lengths = torch.where(rows >= 0, self.lengths[rows.clamp(min=0)], 0)
        steps = torch.arange(longest)
        is_event = steps < lengths[:, None]  # [B, L]
        # Padding reads event 0, a valid index, and is set to 0 below.
        events = (self.offsets[rows.clamp(min=0)][:, None] + steps) * is_event  # [B, L]
        return {name: self.columns[name][events] * is_event for name in names}, lengths


@dataclass(frozen=True)
class LoadedBatches:
    """Batches gathered from sessions in memory."""

    sessions: Sessions
    rows: list[Tensor]
    """Rows of the sessions of each global batch."""
    rank: Rank

    @property
    def n_steps(self) -> int:
        """Global batches in the pass."""
        return len(self.rows)

    @cached_property
    def every_row(self) -> Int[Tensor, " n"]:
        """Rows of the sessions in the order of the pass."""
        return torch.cat([torch.zeros(0, dtype=torch.int64), *self.rows])

    def unsplit(self) -> "LoadedBatches":
        """Return the pass of a process that takes all rows of every batch."""
        return replace(self, rank=Rank(index=0, world_size=1))

    def among(self, wanted: Int[Tensor, " k"]) -> "LoadedBatches":
        """Return a pass over the wanted rows alone, in batches of the same size."""
        kept = self.every_row[torch.isin(self.every_row, wanted)]
        lengths = self.sessions.lengths
        return replace(self, rows=_cut_sorted(kept, lengths, len(self.rows[0]) if self.rows else 1))

    @property
    def read(self) -> None:
        """Nothing is on disk."""

    def counted(self) -> "LoadedBatches":
        """Return the pass in fewer batches, as a step of counting costs little besides its call."""
        if not self.rows:
            return self
        longest = int(self.sessions.lengths.max())
        widths = np.array([len(rows) * longest for rows in self.rows], np.int64)
        return replace(self, rows=[torch.cat(self.rows[part]) for part in cut(widths, CELLS)])

    def gather(self, places: Int[Tensor, " n"]) -> Batch:
        """Return some sessions, by their place in the pass."""
        return self.sessions.gather(self.every_row[places], self.rank)

    def padded(self) -> Iterator[Padded]:
        """Yield all rows, whatever this process's rank is."""
        return ((batch.columns, batch.lengths) for batch in self.unsplit())

    def __iter__(self) -> Iterator[Batch]:
        """Yield this process's rows, batch by batch."""
        for rows in self.rows:
            yield self.sessions.gather(rows, self.rank)


def shuffled_rows(lengths: Int[Tensor, " S"], batch_size: int, seed: int) -> list[Tensor]:
    """Return the rows of each batch of shuffled sessions; within a batch the shorter come first.

    Batches of sessions of similar length would need less padding, but cost .004 NDCG@20 on the
    hourly windows of G1: `length_groups` saves padding within a batch instead.
    """
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    return _cut_sorted(order, lengths, batch_size)


def _cut_sorted(rows: Int[Tensor, " n"], lengths: Int[Tensor, " S"], size: int) -> list[Tensor]:
    """Split into batches of `size`, in which the shorter sessions come first."""
    return [part[lengths[part].argsort(stable=True)] for part in _cut(rows, size)]


def sorted_rows(lengths: Int[Tensor, " S"], batch_size: int) -> list[Tensor]:
    """Return the rows of each batch, shortest sessions first, so that padding is rare."""
    return _cut(lengths.argsort(stable=True), batch_size)


def _cut(rows: Int[Tensor, " n"], size: int) -> list[Tensor]:
    """Split into chunks of `size`; empty input gives no chunk (torch.split would give one)."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
