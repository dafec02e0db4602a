"""Count what the lists of a window show, as they are made, without keeping the lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dayahead.core.columns import IS_PAST, ITEM_ID, N_RESERVED
from dayahead.core.phases import in_phase
from dayahead.distributed.process import Process
from dayahead.metrics.lists import Shown

WAITING: Final = 2**22
"""Places of lists that wait to be counted: 32 MiB."""


class ListCounts:
    """Counts of the items in the lists of a window; every process counts its own lists.

    Args:
        length: items of each list.
        process: this process.
    """

    def __init__(self, length: int, process: Process) -> None:
        self.length = length
        self.process = process
        self.n_lists = 0
        self.own = torch.zeros(length, dtype=torch.int64, device=process.device)
        self._codes, self._counts = (torch.zeros(0, dtype=torch.int64) for _ in range(2))
        self._waiting: list[Tensor] = []
        """Places that are not counted yet, each as item * length + position."""

    def shorten(self, length: int) -> None:
        """Let lists have at most `length` items, as there are no more candidates at some time.

        Call it before the first `add`.
        """
        self.length = min(self.length, length)
        self.own = self.own[: self.length]

    @in_phase("lists")
    def add(
        self,
        items: Int[Tensor, "Q K"],
        columns: Mapping[str, Tensor],
        n_known: Int[Tensor, " Q"],
        is_real: Bool[Tensor, " Q"],
    ) -> None:
        """Count lists, best item first, of sessions of which `n_known` events each are known.

        Those of idle processes are not real.
        """
        if self.length == 0:
            return
        items, n_known = items[is_real, : self.length], n_known[is_real]
        self.n_lists += len(items)
        self._waiting.append((items * self.length + torch.arange(self.length).to(items)).flatten())
        if sum(map(len, self._waiting)) > WAITING:
            self._count()
        events = columns[ITEM_ID][is_real]
        steps = torch.arange(events.shape[1], device=events.device)
        is_own = (steps < n_known[:, None]) & (events >= N_RESERVED)
        if IS_PAST in columns:
            is_own &= columns[IS_PAST][is_real] != 1
        own = events.where(is_own, 0)
        self.own += (items[:, :, None] == own[:, None, :]).any(2).sum(0)

    def _count(self) -> None:
        """Add the waiting places to the counts."""
        places = torch.cat([*self._waiting, self._codes.to(self.process.device)])
        weights = torch.ones(len(places), dtype=torch.int64)
        weights[len(places) - len(self._counts) :] = self._counts
        self._codes, row = (each.cpu() for each in torch.unique(places, return_inverse=True))
        self._counts = torch.zeros_like(self._codes).index_add_(0, row, weights)
        self._waiting = []

    def joined(self) -> Shown:
        """Return the sums over all processes; a collective."""
        self._count()
        parts = (self._codes, self._counts, self.own)
        found = self.process.all_gather((self.n_lists, *(each.cpu().numpy() for each in parts)))
        n_lists, codes, counts, own = zip(*found, strict=True)
        item, position = np.divmod(np.concatenate(codes), self.length)
        items, row = np.unique(item, return_inverse=True)
        table = np.zeros((len(items), self.length), np.int64)
        np.add.at(table, (row, position), np.concatenate(counts))
        return Shown(n_lists=sum(n_lists), items=items, counts=table, own=np.sum(own, axis=0))


@dataclass(frozen=True)
class Best:
    """What is wanted of the candidates that score highest for each target."""

    n_kept: int = 0
    """Number of them to return."""
    lists: ListCounts | None = None
    """Counts of the lists that they make, if wanted."""

    @property
    def n_ranked(self) -> int:
        """Number of them to find."""
        return max(self.n_kept, 0 if self.lists is None else self.lists.length)


NO_BEST: Final = Best()
