"""Evaluate a model that counts within the window: each target is ranked as of its tick.

A target is asked for right after the last click of its prefix, as a service is, and the model has
counted the clicks before the last tick up to then (prequential: Gama et al. 2013).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import EVENT_TIME, IS_TARGET, ITEM_ID
from dayahead.core.phases import steps
from dayahead.core.ragged import row_of_each
from dayahead.distributed.process import Process, Rank
from dayahead.model.model import Model
from dayahead.train.batches import Sessions
from dayahead.train.evaluate import (
    SCORES_AT_ONCE,
    FoundRanks,
    Offered,
    Prefixes,
    RankedTargets,
    ShardedRanking,
    session_scorer,
)
from dayahead.train.list_counts import NO_BEST, Best


@dataclass(frozen=True)
class Request:
    """Targets to rank: T prefixes of sessions."""

    sessions: Sessions
    rows: Int[Tensor, " T"]
    """Session of each prefix, in order of ticks, the shorter prefixes of a tick first."""
    n_known: Int[Tensor, " T"]
    """Events of each prefix."""
    indices: Int[Tensor, " T"]
    """Index of the target among all targets, session after session."""
    ticks: NDArray[np.int64]
    """[T] last tick up to the prefix's last event, and not after the window's end."""
    best: Best = NO_BEST
    """What is wanted of each target's highest-scored candidates."""

    @classmethod
    def of(
        cls,
        sessions: Sessions,
        n_targets: NDArray[np.int64],
        tick: int,
        end: int,
        best: Best = NO_BEST,
    ) -> "Request":
        """Ask for the last `n_targets` [S] items of each session that are of a type to predict."""
        lengths, offsets = sessions.lengths.numpy(), sessions.offsets.numpy()
        could_be = np.ones(offsets[-1], np.int64)
        if IS_TARGET in sessions.columns:
            could_be = sessions.columns[IS_TARGET].numpy()
        n_before = np.append(0, could_be.cumsum())
        n_left = n_before[offsets[1:]].repeat(lengths) - n_before[:-1]  # from each event on
        [events] = ((could_be == 1) & (n_left <= n_targets.repeat(lengths))).nonzero()
        rows = row_of_each(lengths)[events]
        n_known = events - offsets[rows]
        times = sessions.columns[EVENT_TIME].numpy()[events - 1]
        ticks = np.minimum(times // tick * tick, end)
        # Prefixes of similar length go together, which saves padding.
        order = np.lexsort([n_known, ticks])
        of_rows, of_known = (torch.from_numpy(each[order]) for each in (rows, n_known))
        indices = torch.from_numpy(order)
        return cls(sessions, of_rows, of_known, indices, ticks[order], best)

    def prefixes_at(self, tick: int, rank: Rank, size: int) -> Iterator[Prefixes]:
        """Yield this process's prefixes of a tick, at most `size` at a time."""
        start, end = np.searchsorted(self.ticks, [tick, tick + 1])
        own = torch.from_numpy(np.arange(start + rank.index, end, rank.world_size))
        for part in torch.split(own, size) if len(own) else ():
            # The batch of one process, as the prefixes are divided already.
            columns = self.sessions.gather(self.rows[part], Rank(index=0, world_size=1)).columns
            n_known = self.n_known[part]
            targets = columns[ITEM_ID][torch.arange(len(part)), n_known]
            yield Prefixes(columns, n_known, targets, self.indices[part])


def evaluate_live(
    model: Model,
    request: Request,
    offered: Callable[[int], Offered],
    process: Process,
    batch_size: int,
) -> RankedTargets:
    """Rank the targets of a request while the model counts the window that it follows.

    Args:
        model: with a tick; it follows the window.
        request: what is asked of the window.
        offered: from a tick to what sessions may get at it; counting adds some.
        process: this process.
        batch_size: prefixes scored at once over all processes together.

    Raises:
        ScoreError: a score is not finite.
    """
    ticks = np.unique(request.ticks).tolist()
    # Counting adds candidates, so that at no tick there are fewer than before it.
    n_fewest = min((len(offered(tick)) for tick in ticks), default=0)
    found = FoundRanks(len(request.rows), request.best, n_fewest, process)
    if request.best.lists is not None:
        request.best.lists.shorten(n_fewest)
    own_batch = max(1, batch_size // process.rank.world_size)
    for tick in steps(ticks):
        model.advance(tick)
        now = offered(tick)
        wanted = torch.from_numpy(now.candidates).long().to(process.device)
        scorer = session_scorer(model, wanted, now)
        size = min(own_batch, max(1, SCORES_AT_ONCE // max(1, len(wanted))))
        ranks_of = ShardedRanking(model.shard, wanted, request.best.n_ranked)
        for prefixes in request.prefixes_at(tick, process.rank, size):
            found.add(prefixes.to(process.device), scorer, ranks_of)
    return found.joined()
