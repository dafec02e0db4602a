"""Evaluate a model on a window: ranks of its targets, computed where the scores are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import ITEM_ID
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from dayahead.metrics.tables import WindowRanks
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import Batch, Batches
from dayahead.train.sharded_ranking import ShardedRanking


@dataclass(frozen=True)
class Targets:
    """Which items of a window's sessions are predicted."""

    counts: NDArray[np.int64]
    """[S] number of targets of each session, in file order: its last so many items."""

    @classmethod
    def last(cls, n_sessions: int) -> "Targets":
        """Each session's last item."""
        return cls(np.ones(n_sessions, np.int64))

    @classmethod
    def all(cls, lengths: NDArray[np.int32]) -> "Targets":
        """Every item after the first of each session, whose lengths are given."""
        return cls(lengths.astype(np.int64) - 1)

    @property
    def sessions(self) -> NDArray[np.int64]:
        """[T] row of each target's session."""
        return np.arange(len(self.counts)).repeat(self.counts)

    @property
    def positions(self) -> NDArray[np.int32]:
        """[T] position of each target in its session, where all but the first are targets."""
        starts = np.cumsum(self.counts) - self.counts
        steps = np.arange(1, self.counts.sum() + 1) - starts.repeat(self.counts)
        return np.asarray(steps, np.int32)


@dataclass(frozen=True)
class RankedTargets:
    """Every target of a window, session after session in file order."""

    targets: NDArray[np.int32]
    """[T] catalogue indices."""
    ranks: NDArray[np.int32]
    """[T] 1 is best, 0 where the target was no candidate."""
    top_columns: NDArray[np.int32]
    """[T, K] positions among the candidates of those scored highest, best first."""
    top_scores: NDArray[np.float32]
    """[T, K]"""

    def as_window_ranks(
        self, session_ids: pa.ChunkedArray, targets: Targets, positions: str
    ) -> WindowRanks:
        """Return the ranks under the ids of the window's sessions.

        Args:
            session_ids: of the window's sessions, in file order.
            targets: which of their items were ranked.
            positions: the setting `evaluation.positions`.
        """
        if positions == "last":
            return WindowRanks(session_ids, None, self.targets, self.ranks)
        ids = session_ids.take(pa.array(targets.sessions))
        return WindowRanks(ids, targets.positions, self.targets, self.ranks)


@dataclass(frozen=True)
class _Prefixes:
    """Session prefixes to score, shortest first, and the items that follow them."""

    columns: Mapping[str, Tensor]
    n_known: Int[Tensor, " P"]
    """Items of each prefix."""
    targets: Int[Tensor, " P"]
    indices: Int[Tensor, " P"]
    """Of the targets, among all targets of the window."""


def evaluate(
    model: NextItemModel | CountingModel,
    batches: Batches,
    targets: Targets,
    candidates: NDArray[np.int32],
    process: Process,
    top_k: int = 0,
) -> RankedTargets:
    """Rank every target among the candidates, given the items of its session before it.

    Each target is scored from a prefix that ends before it, so no model can read it or anything
    after it. Each process ranks its own sessions; an all_reduce puts them together exactly.

    Args:
        model: fitted on earlier windows only.
        batches: one pass over the sessions.
        targets: which of their items are predicted.
        candidates: catalogue indices, ascending.
        process: this one.
        top_k: candidates with the highest scores to return for each target.

    Raises:
        ScoreError: a score is not finite.
    """
    device = process.device
    wanted, counts = (
        torch.from_numpy(each).long().to(device) for each in (candidates, targets.counts)
    )
    scorer = model.scorer(wanted)
    ranks_of = ShardedRanking(model.shard, wanted, top_k)
    # Rows: targets, ranks, top columns. The column behind the last takes what idle processes rank.
    size = (2 + min(top_k, len(wanted)), int(counts.sum()) + 1)
    found = torch.zeros(size, dtype=torch.int32, device=device)
    top_scores = torch.zeros(size[0] - 2, size[1], device=device)
    for batch in batches:
        for part in _prefixes_in_step(batch, counts, model.shard, process):
            scores = scorer(part.columns, part.n_known).to(device)
            ranks, columns, highest = ranks_of(scores, part.targets)
            found[:, part.indices] = torch.cat([part.targets[None], ranks[None], columns.T]).int()
            top_scores[:, part.indices] = highest.T
    found, top_scores = (process.all_reduce(each).cpu()[:, :-1] for each in (found, top_scores))
    return RankedTargets(
        found[0].numpy(), found[1].numpy(), found[2:].T.numpy(), top_scores.T.numpy()
    )


def _prefixes_in_step(
    batch: Batch, counts: Int[Tensor, " S"], shard: Shard, process: Process
) -> Iterator[_Prefixes]:
    """Yield the prefixes of a batch, as often on every process where scoring takes them all."""
    parts = _prefixes(batch.without_empty_rows().to(process.device), counts)
    if shard.is_whole:
        yield from parts
        return
    one = torch.ones(1, dtype=torch.int64, device=process.device)
    first = {name: values[:1, :1].to(one.device) for name, values in batch.columns.items()}
    idle = _Prefixes(first, n_known=one, targets=one * 0, indices=-one)
    while True:
        part = next(parts, None)
        n_busy = torch.tensor(int(part is not None), device=process.device)
        if not process.all_reduce(n_busy):
            return
        yield idle if part is None else part


def _prefixes(batch: Batch, counts: Int[Tensor, " S"]) -> Iterator[_Prefixes]:
    """Cut a batch's targets into parts of as many rows as the batch has.

    Args:
        batch: whole sessions, none of them empty.
        counts: number of targets of each session of the window.
    """
    items = batch.columns[ITEM_ID]
    if len(items) == 0:
        return
    steps = torch.arange(items.shape[1], device=items.device)
    starts = batch.lengths - counts[batch.sessions]
    is_target = (steps >= starts[:, None]) & (steps < batch.lengths[:, None])  # [B, L]
    rows, n_known = is_target.nonzero(as_tuple=True)
    indices = (counts.cumsum(0)[batch.sessions] - batch.lengths)[rows] + n_known
    order = n_known.argsort(stable=True)
    for start in range(0, len(order), len(items)):
        part = order[start : start + len(items)]
        yield _Prefixes(
            columns={name: values[rows[part]] for name, values in batch.columns.items()},
            n_known=n_known[part],
            targets=items[rows[part], n_known[part]],
            indices=indices[part],
        )
