"""Rows of a table over processes: of w processes, number r holds the rows r, r + w, r + 2w ...

So a table that grows leaves every row where it is, and all processes hold as many. The processes
must call what exchanges rows in step. Gradients are those of the sum of all processes' losses, as
everywhere in torch.distributed.
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

ROWS_AT_ONCE = 2**18
"""Of a process, that cross over together where a whole table is collected or dealt out."""


@dataclass(frozen=True)
class Shard:
    """The rows that this process holds of every table that is shared out."""

    rank: int = 0
    world_size: int = 1
    group: dist.ProcessGroup | None = None
    """Of its own: rows cross over while gradients do."""

    @classmethod
    def create(cls, rank: Rank) -> "Shard":
        """Shard tables over all processes, which must call this together."""
        if rank.world_size == 1:
            return WHOLE
        return cls(rank.index, rank.world_size, dist.new_group(timeout=TIMEOUT))

    @property
    def is_whole(self) -> bool:
        """Whether this process holds every row."""
        return self.world_size == 1

    def local_slice(self, begin: int, end: int) -> slice:
        """Rows from `begin` to `end` that are held here."""
        return slice(begin + (self.rank - begin) % self.world_size, end, self.world_size)

    def n_local(self, n_rows: int) -> int:
        """How many of a table's first rows are held here."""
        return len(range(self.rank, n_rows, self.world_size))

    def local_indices(
        self, items: Int[Tensor, " E"]
    ) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"]]:
        """Which of some rows are held here, and at what places of the own ones."""
        [held] = (items % self.world_size == self.rank).nonzero(as_tuple=True)
        return held, items[held] // self.world_size

    def lookup(
        self, own: Float[Tensor, "m d"], rows: Int[Tensor, " ..."]
    ) -> Float[Tensor, "... d"]:
        """Look rows of the whole table up, wherever they are held."""
        if self.is_whole:
            return embedding(rows, own)
        wanted, places = torch.unique(rows, return_inverse=True)
        holders = wanted % self.world_size
        order = holders.argsort(stable=True)
        n_wanted = holders.bincount(minlength=self.world_size)
        n_given = self._crossed(n_wanted, [1] * self.world_size, [1] * self.world_size).tolist()
        asked = self._crossed(wanted[order], n_wanted.tolist(), n_given)
        found = self._crossed(embedding(asked // self.world_size, own), n_given, n_wanted.tolist())
        return embedding(order.argsort()[places], found)

    def lookup_scalars(
        self, own: Float[Tensor, " m"], rows: Int[Tensor, " ..."]
    ) -> Float[Tensor, " ..."]:
        """Look up in a table of single numbers."""
        return own[rows] if self.is_whole else self.lookup(own[:, None], rows)[..., 0]

    def mean(self, own: Float[Tensor, "m ..."], n_rows: int) -> Float[Tensor, " ..."]:
        """Mean over all `n_rows` rows of the whole table."""
        if self.is_whole:
            return own.mean(0)
        return self.stack(own.sum(0)).sum(0) / n_rows

    def all_gather(
        self, *values: Float[Tensor, "T ..."]
    ) -> tuple[list[Float[Tensor, "E ..."]], list[int]]:
        """Every process's values, one process after the other, and how many are whose.

        Args:
            values: all of one length.
        """
        n_here = len(values[0])
        if self.is_whole:
            return list(values), [n_here]
        n_of = self.stack(torch.tensor(n_here, device=values[0].device)).tolist()
        copies = (each.repeat(self.world_size, *[1] * (each.dim() - 1)) for each in values)
        return [self._crossed(each, [n_here] * self.world_size, n_of) for each in copies], n_of

    def stack(self, values: Float[Tensor, "..."]) -> Float[Tensor, "w ..."]:
        """Every process's values, which are as many everywhere."""
        if self.is_whole:
            return values[None]
        n_of = [1] * self.world_size
        return self._crossed(values.expand(self.world_size, *values.shape), n_of, n_of)

    def send_back(
        self, found: Float[Tensor, "E k"], n_of: list[int], widths: list[int]
    ) -> list[Float[Tensor, "T k"]]:
        """What each process has found for the values gathered here.

        Args:
            found: for every process's values, as `gathered` has them.
            n_of: how many are whose, of `gathered`.
            widths: columns that each process finds for a value.
        """
        if self.is_whole:
            return [found]
        n_here = n_of[self.rank]
        sent, received = [n * found.shape[1] for n in n_of], [n_here * width for width in widths]
        parts = torch.split(self._crossed(found.reshape(-1), sent, received), received)
        return [part.view(n_here, width) for part, width in zip(parts, widths, strict=True)]

    def gather_rows(self, own: Tensor, n_rows: int, device: torch.device) -> Tensor:
        """Put the whole table together in process 0; the others keep their own rows.

        Args:
            own: on the CPU, as is the whole table.
            n_rows: of the whole table.
            device: through which rows cross over.
        """
        whole = own if self.rank else own.new_empty((n_rows, *own.shape[1:]))
        for begin, end in self._stretches(n_rows):
            n_of = [
                len(range(begin + rank, end, self.world_size)) for rank in range(self.world_size)
            ]
            part = own[self.n_local(begin) : self.n_local(end)].to(device)
            sent = [len(part), *[0] * (self.world_size - 1)]
            received = n_of if self.rank == 0 else [0] * self.world_size
            pieces = torch.split(self._crossed(part, sent, received).cpu(), received)
            for rank, piece in enumerate(pieces if self.rank == 0 else ()):
                whole[begin + rank : end : self.world_size] = piece
        return whole

    def scatter_rows(self, whole: Tensor | None, like: Tensor, n_rows: int) -> Tensor:
        """Hand out process 0's whole table; the rows that this process holds.

        Args:
            whole: on the CPU of process 0; not looked at elsewhere.
            like: of the same dtype and columns, on the device that the rows are wanted on.
            n_rows: of the whole table.
        """
        own = like.new_empty((self.n_local(n_rows), *like.shape[1:]))
        for begin, end in self._stretches(n_rows):
            n_of = [
                len(range(begin + rank, end, self.world_size)) for rank in range(self.world_size)
            ]
            part, sent = own[:0], [0] * self.world_size
            if whole is not None and self.rank == 0:
                stretch = whole[begin:end].to(own.device)
                part, sent = (
                    torch.cat([stretch[r :: self.world_size] for r in range(self.world_size)]),
                    n_of,
                )
            received = [n_of[self.rank], *[0] * (self.world_size - 1)]
            own[self.n_local(begin) : self.n_local(end)] = self._crossed(part, sent, received)
        return own

    def _stretches(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """Begin and end of the rows that cross over together; each begins with one of rank 0."""
        step = ROWS_AT_ONCE * self.world_size
        for begin in range(0, n_rows, step):
            yield begin, min(begin + step, n_rows)

    def _crossed(self, values: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send the first `sent[r]` values to process r, and so on; what all sent here."""
        crossed: Tensor = _Crossing.apply(values, sent, received, self.group)  # type: ignore[no-untyped-call]
        return crossed


class _Crossing(Function):
    """all_to_all_single, and back again for gradients; torch's own for both is not public."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        values: Tensor,
        sent: list[int],
        received: list[int],
        group: dist.ProcessGroup,
    ) -> Tensor:
        ctx.way_back = received, sent, group  # type: ignore[attr-defined]
        crossed = values.new_empty((sum(received), *values.shape[1:]))
        dist.all_to_all_single(crossed, values.contiguous(), received, sent, group=group)
        return crossed

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        back = _Crossing.apply(gradient, *ctx.way_back)  # type: ignore[attr-defined, no-untyped-call]
        return back, None, None, None


WHOLE = Shard()
"""All rows on one process."""
