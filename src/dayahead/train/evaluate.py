"""Ranks of a window's targets, computed where the scores are, and the items scored best."""

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
    """What is asked of a window's sessions, and where each answer's place is."""

    n_of: NDArray[np.int64]
    """Targets of each session, in the order of its file: its last so many items."""

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
        """Place of each target's session."""
        return np.arange(len(self.n_of)).repeat(self.n_of)

    @property
    def positions(self) -> NDArray[np.int32]:
        """Place of each target in its session, where all but the first are targets."""
        begins = np.cumsum(self.n_of) - self.n_of
        steps = np.arange(1, self.n_of.sum() + 1) - begins.repeat(self.n_of)
        return np.asarray(steps, np.int32)


@dataclass(frozen=True)
class Measured:
    """Every target of a window, session after session in the order of its file."""

    targets: NDArray[np.int32]
    """Catalogue indices."""
    ranks: NDArray[np.int32]
    """1 is best, 0 where the target was no candidate."""
    best: NDArray[np.int32]
    """[T, K] places among the candidates of those scored best, best first."""
    best_scores: NDArray[np.float32]
    """[T, K]"""


def window_ranks(
    session_ids: pa.ChunkedArray, asked: Targets, found: Measured, positions: str
) -> WindowRanks:
    """What `measure` found, under the ids of the window's sessions."""
    if positions == "last":
        return WindowRanks(session_ids, None, found.targets, found.ranks)
    of_targets = session_ids.take(pa.array(asked.sessions))
    return WindowRanks(of_targets, asked.positions, found.targets, found.ranks)


@dataclass(frozen=True)
class Questions:
    """Some questions of a batch, shortest first: what follows each session's first events?"""

    columns: Mapping[str, Tensor]
    n_known: Int[Tensor, " Q"]
    targets: Int[Tensor, " Q"]
    places: Int[Tensor, " Q"]
    """Of the answers, among all targets of the window."""


def measure(
    model: NextItemModel | CountingModel,
    batches: Batches,
    asked: Targets,
    candidates: NDArray[np.int32],
    process: Process,
    n_best: int = 0,
) -> Measured:
    """Rank targets among the candidates, each given its session's items before it.

    Every target is a question of its own, so that whatever the model, nothing at or after it is
    read. Each process ranks its own sessions; sums over processes put them together exactly.

    Args:
        model: fitted on earlier windows only.
        batches: one pass over the sessions.
        asked: which of their items are targets.
        candidates: catalogue indices, ascending.
        process: this one.
        n_best: candidates with the highest scores to keep for each target.

    Raises:
        ScoreError: a score is not finite.
    """
    device = process.device
    wanted, n_of = (torch.from_numpy(each).long().to(device) for each in (candidates, asked.n_of))
    scorer = model.scorer(wanted)
    ranks_of = ShardedRanking(model.shard, wanted, n_best)
    # Targets, ranks, best ... of every target, and behind the last of what nobody asked.
    size = (2 + min(n_best, len(wanted)), int(n_of.sum()) + 1)
    found = torch.zeros(size, dtype=torch.int32, device=device)
    highest = torch.zeros(size[0] - 2, size[1], device=device)
    for batch in batches:
        for part in _in_step(batch, n_of, model.shard, process):
            scores = scorer(part.columns, part.n_known).to(device)
            ranks, best, of_best = ranks_of(scores, part.targets)
            found[:, part.places] = torch.cat([part.targets[None], ranks[None], best.T]).int()
            highest[:, part.places] = of_best.T
    found, highest = (process.all_reduce(each).cpu()[:, :-1] for each in (found, highest))
    return Measured(found[0].numpy(), found[1].numpy(), found[2:].T.numpy(), highest.T.numpy())


def _in_step(
    batch: Batch, n_of: Int[Tensor, " S"], shard: Shard, process: Process
) -> Iterator[Questions]:
    """Parts of a batch's questions, as many on every process where scoring takes them all."""
    parts = _questions(batch.without_empty_rows().to(process.device), n_of)
    if shard.is_whole:
        yield from parts
        return
    one = torch.ones(1, dtype=torch.int64, device=process.device)
    first = {name: values[:1, :1].to(one.device) for name, values in batch.columns.items()}
    idle = Questions(first, n_known=one, targets=one * 0, places=-one)
    while True:
        part = next(parts, None)
        is_asked = torch.tensor(int(part is not None), device=process.device)
        if not process.all_reduce(is_asked):
            return
        yield idle if part is None else part


def _questions(batch: Batch, n_of: Int[Tensor, " S"]) -> Iterator[Questions]:
    """Cut a batch's questions into parts of as many rows as it has.

    Args:
        batch: of whole sessions, none of them empty.
        n_of: targets of each session of the window.
    """
    items = batch.columns[ITEM_ID]
    if len(items) == 0:
        return
    steps = torch.arange(items.shape[1], device=items.device)
    begins = batch.lengths - n_of[batch.sessions]
    is_target = (steps >= begins[:, None]) & (steps < batch.lengths[:, None])  # [B, L]
    rows, n_known = is_target.nonzero(as_tuple=True)
    places = (n_of.cumsum(0)[batch.sessions] - batch.lengths)[rows] + n_known
    order = n_known.argsort(stable=True)
    for begin in range(0, len(order), len(items)):
        part = order[begin : begin + len(items)]
        yield Questions(
            columns={name: values[rows[part]] for name, values in batch.columns.items()},
            n_known=n_known[part],
            targets=items[rows[part], n_known[part]],
            places=places[part],
        )
