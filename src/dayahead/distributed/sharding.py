"""Tables sharded by rows: of w processes, rank r holds the rows r, r + w, r + 2w ...

So a table can grow without moving a row, and all processes hold equally many. Methods that exchange
rows are collectives: all processes call them in the same order. Gradients are those of the sum of
all processes' losses, as everywhere in torch.distributed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn.functional import embedding

from dayahead.distributed.process import TIMEOUT, Rank

Sizes = list[int]
"""One number per rank."""
Exchange = tuple[Sizes, Sizes, dist.ProcessGroup | None]
ROWS_PER_CHUNK = 2**18
"""Rows of each process that are exchanged at once when a whole table is gathered or scattered."""


@dataclass(frozen=True)
class Shard:
    """The rows of every sharded table that this process holds."""

    rank: int = 0
    world_size: int = 1
    group: dist.ProcessGroup | None = None
    """Separate from the default group, because rows are exchanged while gradients are."""

    @classmethod
    def create(cls, rank: Rank) -> "Shard":
        """Shard tables over all processes; a collective."""
        if rank.world_size == 1:
            return WHOLE
        return cls(rank.index, rank.world_size, dist.new_group(timeout=TIMEOUT))

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
        [held] = (items % self.world_size == self.rank).nonzero(as_tuple=True)
        return held, items[held] // self.world_size

    def lookup(
        self, local: Float[Tensor, "m d"], rows: Int[Tensor, " ..."]
    ) -> Float[Tensor, "... d"]:
        """Look up rows of the whole table, wherever they are held."""
        if self.is_whole:
            return embedding(rows, local)
        wanted, inverse = torch.unique(rows, return_inverse=True)
        holders = wanted % self.world_size
        order = holders.argsort(stable=True)
        n_wanted = holders.bincount(minlength=self.world_size)
        ones = [1] * self.world_size
        n_requested = self._all_to_all(n_wanted, ones, ones).tolist()
        requested = self._all_to_all(wanted[order], n_wanted.tolist(), n_requested)
        rows_out = embedding(requested // self.world_size, local)
        received = self._all_to_all(rows_out, n_requested, n_wanted.tolist())
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
        ones = [1] * self.world_size
        return self._all_to_all(values.expand(self.world_size, *values.shape), ones, ones)

    def all_gather(
        self, *values: Float[Tensor, "T ..."]
    ) -> tuple[list[Float[Tensor, "E ..."]], list[int]]:
        """Concatenate every process's values by rank, and count those of each rank.

        All `values` have the same length, which may differ between processes.
        """
        n_local = len(values[0])
        if self.is_whole:
            return list(values), [n_local]
        n_of = self.stack(torch.tensor(n_local, device=values[0].device)).tolist()
        copies = (each.repeat(self.world_size, *[1] * (each.dim() - 1)) for each in values)
        return [self._all_to_all(each, [n_local] * self.world_size, n_of) for each in copies], n_of

    def send_back(
        self, results: Float[Tensor, "E k"], n_of: list[int], widths: list[int]
    ) -> list[Float[Tensor, "T k"]]:
        """Return the results of each rank for this process's values: the reverse of `all_gather`.

        Args:
            results: of this process, for the concatenated values of `all_gather`.
            n_of: values of each rank, from `all_gather`.
            widths: columns of each rank's results.
        """
        if self.is_whole:
            return [results]
        n_local = n_of[self.rank]
        sent, received = [n * results.shape[1] for n in n_of], [n_local * k for k in widths]
        parts = torch.split(self._all_to_all(results.reshape(-1), sent, received), received)
        return [part.view(n_local, k) for part, k in zip(parts, widths, strict=True)]

    def gather_rows(self, local: Tensor, n_rows: int, device: torch.device) -> Tensor:
        """Gather the whole table of `n_rows` in rank 0; the other ranks return their local rows.

        `local` is on the CPU, like the result; `device` is what the process group transfers from.
        """
        whole = local if self.rank else local.new_empty((n_rows, *local.shape[1:]))
        for begin, end, n_of in self._chunks(n_rows):
            part = local[self.n_local(begin) : self.n_local(end)].to(device)
            sent = [len(part), *[0] * (self.world_size - 1)]
            received = n_of if self.rank == 0 else [0] * self.world_size
            pieces = torch.split(self._all_to_all(part, sent, received).cpu(), received)
            for rank, piece in enumerate(pieces if self.rank == 0 else ()):
                whole[begin + rank : end : self.world_size] = piece
        return whole

    def scatter_rows(self, whole: Tensor | None, like: Tensor, n_rows: int) -> Tensor:
        """Scatter rank 0's whole table of `n_rows` and return this rank's rows.

        `whole` is on the CPU, and ignored on other ranks; `like` has the dtype, columns and device
        of the result.
        """
        local = like.new_empty((self.n_local(n_rows), *like.shape[1:]))
        for begin, end, n_of in self._chunks(n_rows):
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

    def _chunks(self, n_rows: int) -> Iterator[tuple[int, int, list[int]]]:
        """Begin and end of the rows exchanged at once, and the number of each rank's rows."""
        step = ROWS_PER_CHUNK * self.world_size
        for begin in range(0, n_rows, step):
            end = min(begin + step, n_rows)
            ranks = range(self.world_size)
            yield begin, end, [len(range(begin + rank, end, self.world_size)) for rank in ranks]

    def _all_to_all(self, values: Tensor, sent: Sizes, received: Sizes) -> Tensor:
        """Send the first `sent[0]` values to rank 0, and so on; return the values received."""
        result: Tensor = _AllToAll.apply(values, (sent, received, self.group))  # type: ignore[no-untyped-call]
        return result


class _AllToAll(Function):
    """Differentiable all_to_all_single; torch's own is deprecated (distributed.nn) or private."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, exchange: Exchange) -> Tensor:
        sent, received, group = exchange
        ctx.reverse = received, sent, group  # type: ignore[attr-defined]
        result = values.new_empty((sum(received), *values.shape[1:]))
        dist.all_to_all_single(result, values.contiguous(), received, sent, group=group)
        return result

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return _AllToAll.apply(gradient, ctx.reverse), None  # type: ignore[attr-defined, no-untyped-call]


WHOLE = Shard()
"""Not sharded: one process holds every row."""
