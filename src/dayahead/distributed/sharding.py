"""Tables sharded by rows: of w processes, rank r holds the rows r, r + w, r + 2w ...

A table can thus grow without moving a row, and all processes hold equally many. Methods that
exchange rows are collectives: all processes call them in the same order. Gradients are those of the
sum of all processes' losses, as everywhere in torch.distributed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx, once_differentiable
from torch.nn.functional import embedding

from dayahead.distributed.collectives import TIMEOUT, Collectives, Sizes
from dayahead.distributed.process import Rank

Exchange = tuple[Sizes, Sizes, Collectives]
"""Numbers of values sent to and received from each rank."""
Gather = tuple[Sizes | None, int, torch.dtype, Collectives]
"""Number of values of each rank, if known; own rank; dtype in which values are sent."""
CHUNK_BYTES = 2**24
"""Bytes of rows, over all processes, exchanged at once when a table is written or read."""


class Rows(Protocol):
    """A table, in memory or in a file."""

    def __getitem__(self, rows: slice) -> Tensor:
        """Return rows on the CPU."""
        ...


@dataclass(frozen=True)
class Shard:
    """The rows of every sharded table that this process holds."""

    rank: int = 0
    world_size: int = 1
    collectives: Collectives = field(default_factory=Collectives)
    """In their own process group, because rows and gradients are exchanged concurrently."""

    @classmethod
    def create(cls, rank: Rank) -> "Shard":
        """Shard tables over all processes; a collective."""
        if rank.world_size == 1:
            return WHOLE
        return cls(rank.index, rank.world_size, Collectives(dist.new_group(timeout=TIMEOUT)))

    @property
    def is_whole(self) -> bool:
        """Whether this process holds every row."""
        return self.world_size == 1

    def local_slice(self, begin: int, end: int) -> slice:
        """Slice of the whole table's rows from `begin` to `end` that are held here."""
        return slice(begin + (self.rank - begin) % self.world_size, end, self.world_size)

    def n_local(self, n_rows: int) -> int:
        """Count the rows held here among the first `n_rows`."""
        return len(range(self.rank, n_rows, self.world_size))

    def local_indices(
        self, items: Int[Tensor, " E"]
    ) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"]]:
        """Return which of `items` are rows held here, and their indices in the local table."""
        if self.is_whole:
            return torch.arange(len(items), device=items.device), items
        [held] = (items % self.world_size == self.rank).nonzero(as_tuple=True)
        return held, items[held] // self.world_size

    def own_rows(self, items: Int[Tensor, " E"]) -> Int[Tensor, " E"]:
        """Return the indices of `items` in the local table, or -1 of rows that are not held here.

        Without waiting for a GPU, unlike `local_indices`.
        """
        is_held = items % self.world_size == self.rank
        return torch.where(is_held, items // self.world_size, -1)

    def lookup(
        self, local: Float[Tensor, "m d"], rows: Int[Tensor, " ..."], *, sparse: bool = False
    ) -> Float[Tensor, "... d"]:
        """Look up rows of the whole table, wherever they are held.

        `sparse`: a table held whole gets a gradient of these rows alone.
        """
        if self.is_whole:
            return embedding(rows, local, sparse=sparse)
        # Each row is requested once, however often it occurs.
        wanted, inverse = torch.unique(rows, return_inverse=True)
        holders = wanted % self.world_size
        order = holders.argsort(stable=True)
        n_wanted = holders.bincount(minlength=self.world_size).tolist()
        requested, n_requested = self.collectives.all_to_all(wanted[order], n_wanted)
        rows_out = embedding(requested // self.world_size, local)
        received = self._all_to_all(rows_out, n_requested, n_wanted)
        # Received rows are sorted by holder; the inverse permutations restore the order of `rows`.
        return embedding(order.argsort()[inverse], received)

    def lookup_scalars(
        self, local: Float[Tensor, " m"], rows: Int[Tensor, " ..."]
    ) -> Float[Tensor, " ..."]:
        """Look up in a table of one number per row."""
        return local[rows] if self.is_whole else self.lookup(local[:, None], rows)[..., 0]

    def mean(self, local: Float[Tensor, "m ..."], n_rows: int) -> Float[Tensor, " ..."]:
        """Mean over all `n_rows` rows of the whole table."""
        if self.is_whole:
            return local.mean(0)
        return self.stack(local.sum(0)).sum(0) / n_rows

    def stack(self, values: Float[Tensor, "..."]) -> Float[Tensor, "w ..."]:
        """Gather the values of every process, of the same shape on all."""
        if self.is_whole:
            return values[None]
        return self._all_gather(values[None], [1] * self.world_size)[0]

    def all_gather(
        self, *values: Float[Tensor, "T ..."], dtype: torch.dtype | None = None
    ) -> tuple[list[Float[Tensor, "E ..."]], list[int]]:
        """Concatenate every process's values by rank, and count those of each rank.

        All `values` have the same length, which may differ between processes. In sharded tables,
        values and gradients of floating point are exchanged in `dtype`, if given, and gradients are
        summed in that of the values.
        """
        if self.is_whole:
            return list(values), [len(values[0])]
        first, n_of = self._all_gather(values[0], None, dtype)
        return [first, *(self._all_gather(each, n_of, dtype)[0] for each in values[1:])], n_of

    def send_back(
        self, results: Float[Tensor, "E k"], n_of: list[int], widths: list[int]
    ) -> list[Float[Tensor, "T k"]]:
        """Return the results of each rank for this process's values: the reverse of `all_gather`.

        Args:
            results: results of this process for the concatenated values of `all_gather`.
            n_of: number of values of each rank, from `all_gather`.
            widths: number of columns of each rank's results.
        """
        if self.is_whole:
            return [results]
        n_local = n_of[self.rank]
        sent, received = [n * results.shape[1] for n in n_of], [n_local * k for k in widths]
        parts = torch.split(self._all_to_all(results.reshape(-1), sent, received), received)
        return [part.view(n_local, k) for part, k in zip(parts, widths, strict=True)]

    def row_chunks(self, local: Tensor, n_rows: int, device: torch.device) -> Iterator[Tensor]:
        """Yield the whole table of `n_rows` in rank 0, some rows at a time; a collective.

        The other ranks yield nothing. `local` is on the CPU, like the chunks; the process group
        transfers from `device`.
        """
        if self.is_whole:
            yield local
            return
        for begin, end, n_of in self._chunks(local, n_rows):
            part = local[self.n_local(begin) : self.n_local(end)].to(device)
            sent = [len(part), *[0] * (self.world_size - 1)]
            received = n_of if self.rank == 0 else [0] * self.world_size
            pieces = self._all_to_all(part, sent, received).cpu()
            if self.rank == 0:
                chunk = local.new_empty((end - begin, *local.shape[1:]))
                for rank, piece in enumerate(torch.split(pieces, received)):
                    chunk[rank :: self.world_size] = piece
                yield chunk

    def scatter_rows(self, whole: Rows | None, like: Tensor, n_rows: int) -> Tensor:
        """Scatter rank 0's whole table of `n_rows` and return this rank's rows.

        `whole`, which other ranks ignore, is read some rows at a time; `like` has the dtype,
        columns and device of the result.
        """
        local = like.new_empty((self.n_local(n_rows), *like.shape[1:]))
        for begin, end, n_of in self._chunks(like, n_rows):
            part, sent = local[:0], [0] * self.world_size
            if whole is not None and self.rank == 0:
                chunk = whole[begin:end].to(local.device)
                part = torch.cat(
                    [chunk[rank :: self.world_size] for rank in range(self.world_size)]
                )
                sent = n_of
            received = [n_of[self.rank], *[0] * (self.world_size - 1)]
            local[self.n_local(begin) : self.n_local(end)] = self._all_to_all(part, sent, received)
        return local

    def _chunks(self, like: Tensor, n_rows: int) -> Iterator[tuple[int, int, list[int]]]:
        """Begin and end of the rows exchanged at once, and the number of each rank's rows."""
        row_bytes = like.shape[1:].numel() * like.itemsize
        ranks = range(self.world_size)
        step = max(1, CHUNK_BYTES // (row_bytes * self.world_size)) * self.world_size
        for begin in range(0, n_rows, step):
            end = min(begin + step, n_rows)
            yield begin, end, [len(range(begin + rank, end, self.world_size)) for rank in ranks]

    def _all_gather(
        self, values: Tensor, n_of: Sizes | None, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Sizes]:
        """Concatenate the values of all ranks; return them, and how many are of each rank."""
        sent_dtype = dtype if dtype and values.is_floating_point() else values.dtype
        gather = n_of, self.rank, sent_dtype, self.collectives
        result: tuple[Tensor, Sizes] = _AllGather.apply(values, gather)  # type: ignore[no-untyped-call]
        return result

    def _all_to_all(self, values: Tensor, sent: Sizes, received: Sizes) -> Tensor:
        """Send the first `sent[0]` values to rank 0, and so on; return the values received."""
        result: Tensor = _AllToAll.apply(values, (sent, received, self.collectives))  # type: ignore[no-untyped-call]
        return result


class _AllToAll(Function):
    """Differentiable all_to_all; torch's own is deprecated (distributed.nn) or private."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, exchange: Exchange) -> Tensor:
        sent, received, collectives = exchange
        ctx.reverse = received, sent, collectives  # type: ignore[attr-defined]
        return collectives.all_to_all(values, sent, received)[0]

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return _AllToAll.apply(gradient, ctx.reverse), None  # type: ignore[attr-defined, no-untyped-call]


class _AllGather(Function):
    """Differentiable all_gather of unequal lengths; values and gradients are sent in one dtype.

    Its backward is not a reduce_scatter, which would round partial sums to bfloat16.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, gather: Gather) -> tuple[Tensor, Sizes]:
        n_of, rank, dtype, collectives = gather
        result, n_of = collectives.all_gather(values.to(dtype), n_of)
        ctx.reverse = n_of, [n_of[rank]] * len(n_of), collectives  # type: ignore[attr-defined]
        ctx.dtype = values.dtype  # type: ignore[attr-defined]
        return result, n_of

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: FunctionCtx, gradient: Tensor, _: None) -> tuple[Tensor, None]:
        sent, received, collectives = ctx.reverse  # type: ignore[attr-defined]
        parts, _ = collectives.all_to_all(gradient, sent, received)
        parts = parts.view(len(received), received[0], *gradient.shape[1:])
        return parts.sum(0, dtype=ctx.dtype), None  # type: ignore[attr-defined]


WHOLE = Shard()
"""Not sharded: one process holds every row."""
