"""Evaluate a model on a window: ranks of its targets, also with sharded items."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import IS_TARGET, ITEM_ID, N_RESERVED
from dayahead.core.phases import in_phase, steps
from dayahead.core.ragged import row_of_each
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import Shard
from dayahead.metrics import ranking
from dayahead.model.model import Model
from dayahead.model.own_items import Scored, SessionScorer, columns_of, leaving_out
from dayahead.model.tasks import is_before
from dayahead.outputs.tables import WindowRanks
from dayahead.train.batches import Batch
from dayahead.train.event_types import Targets
from dayahead.train.list_counts import NO_BEST, Best
from dayahead.train.streaming import Batches
from dayahead.windows.items import ItemTable

Top = tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]
"""The best-scored candidates, best first, by column or catalogue index, and their scores."""
SCORES_AT_ONCE = 2**27
"""Scores computed at once on each process: 512 MiB. Without this limit, 512 sessions over 10
million items would take 19 GiB."""


@dataclass(frozen=True)
class Offered:
    """Candidates at a time. A session's own items are candidates besides, unless withdrawn.

    Own items that are not released yet are candidates: the session has just clicked them.
    """

    candidates: NDArray[np.int32]
    """Catalogue indices, ascending."""
    is_withdrawn: NDArray[np.bool_] | None = None
    """[n] by catalogue index; items from n on are not. None: no item is."""

    @classmethod
    def at(cls, time: int, candidates: NDArray[np.int32], table: ItemTable | None) -> "Offered":
        """Return those of `candidates` that a table of items says are available at a time.

        Args:
            time: microseconds since 1970.
            candidates: catalogue indices, ascending.
            table: of items, if there is one.
        """
        if table is None:
            return cls(candidates)
        return cls(candidates[table.is_available(candidates, time)], table.withdrawn(time))

    def __len__(self) -> int:
        """Return the number of candidates that all sessions share."""
        return len(self.candidates)


@dataclass(frozen=True)
class RankedTargets:
    """Every target of a window, session after session in file order."""

    targets: NDArray[np.int32]
    """[T] catalogue indices."""
    ranks: NDArray[np.int32]
    """[T] 1 is best, 0 where the target was no candidate."""
    top_items: NDArray[np.int32]
    """[T, K] catalogue indices of the candidates scored highest, best first."""
    top_scores: NDArray[np.float32]
    """[T, K]"""

    def as_window_ranks(self, session_ids: pa.ChunkedArray, targets: Targets) -> WindowRanks:
        """Return the ranks under the ids of the window's sessions, which are in file order."""
        if targets.steps is None:
            return WindowRanks(session_ids, None, self.targets, self.ranks)
        ids = session_ids.take(pa.array(row_of_each(targets.counts)))
        return WindowRanks(ids, targets.steps.astype(np.int32), self.targets, self.ranks)


@dataclass(frozen=True)
class Prefixes:
    """Session prefixes to score, shortest first, and the items that follow them."""

    columns: Mapping[str, Tensor]
    n_known: Int[Tensor, " P"]
    """Items of each prefix."""
    targets: Int[Tensor, " P"]
    indices: Int[Tensor, " P"]
    """Index of each target among all targets of the window."""

    def to(self, device: torch.device) -> "Prefixes":
        """Move everything to a device."""
        columns = {name: values.to(device) for name, values in self.columns.items()}
        return Prefixes(
            columns, *(e.to(device) for e in (self.n_known, self.targets, self.indices))
        )


class FoundRanks:
    """Ranks of a window's targets, and the best candidates that are wanted, as they are found."""

    def __init__(self, n_targets: int, best: Best, n_candidates: int, process: Process) -> None:
        self.best = best
        self.top_k = top_k = min(best.n_kept, n_candidates)
        self.process = process
        device = process.device
        # Rows: targets, ranks, top items. An extra last column takes the dummies of idle processes.
        self.found = torch.zeros(2 + top_k, n_targets + 1, dtype=torch.int32, device=device)
        self.top_scores = torch.zeros(top_k, n_targets + 1, device=device)

    def add(self, part: Prefixes, scorer: SessionScorer, ranks_of: "ShardedRanking") -> None:
        """Score and rank some targets."""
        scored = scorer(part.columns, part.n_known).to(self.process.device)
        ranks, items, highest = ranks_of(scored, part.targets)
        rows = torch.cat([part.targets[None], ranks[None], items[:, : self.top_k].T])
        self.found[:, part.indices] = rows.int()
        self.top_scores[:, part.indices] = highest[:, : self.top_k].T
        if self.best.lists is not None:
            self.best.lists.add(items, part.columns, part.n_known, part.indices >= 0)

    def joined(self) -> RankedTargets:
        """Return what all processes have found; a collective."""
        # Exact: each target is ranked by one process, and the others add 0.
        both = (self.found, self.top_scores)
        found, top_scores = (self.process.all_reduce(each).cpu()[:, :-1] for each in both)
        return RankedTargets(
            found[0].numpy(), found[1].numpy(), found[2:].T.numpy(), top_scores.T.numpy()
        )


def evaluate(
    model: Model,
    batches: Batches,
    n_targets: NDArray[np.int64],
    offered: Offered,
    process: Process,
    best: Best = NO_BEST,
) -> RankedTargets:
    """Rank every target among the candidates, given the items of its session before it.

    Those items are candidates of their session even where others do not have them.

    Each target is scored from a prefix that ends before it, so no model can read it or anything
    after it. Each process ranks its own sessions; an all_reduce puts them together exactly.

    Args:
        model: fitted on earlier windows only.
        batches: one pass over the sessions.
        n_targets: [S] how many items of each session are predicted, the last ones of a type to
            predict.
        offered: what sessions may get.
        process: this process.
        best: what is wanted of each target's highest-scored candidates.

    Raises:
        ScoreError: a score is not finite.
    """
    device = process.device
    wanted, counts = (
        torch.from_numpy(each).long().to(device) for each in (offered.candidates, n_targets)
    )
    # Each part is ranked before the next one is scored, so the buffer of scores is reused.
    scorer = session_scorer(model, wanted, offered)
    found = FoundRanks(int(counts.sum()), best, len(wanted), process)
    ranks_of = ShardedRanking(model.shard, wanted, best.n_ranked)
    most_rows = max(1, SCORES_AT_ONCE // max(1, len(wanted)))
    for batch in steps(batches):
        for part in _synchronised_prefixes(batch, counts, model.shard, device, most_rows):
            found.add(part, scorer, ranks_of)
    return found.joined()


def session_scorer(model: Model, wanted: Int[Tensor, " C"], offered: Offered) -> SessionScorer:
    """Return what scores the items that sessions may get; it reuses its buffer of scores.

    `wanted` are the candidates of `offered`, on the device of the process.
    """
    scorer, left_out = model.session_scorer(wanted, overwrites=True), offered.is_withdrawn
    if left_out is None:
        return scorer
    return leaving_out(scorer, torch.from_numpy(left_out).to(wanted.device))


def _synchronised_prefixes(
    batch: Batch, counts: Int[Tensor, " S"], shard: Shard, device: torch.device, most_rows: int
) -> Iterator[Prefixes]:
    """Yield the prefixes of a batch; if items are sharded, equally often on every process."""
    own = batch.without_empty_rows().to(device)
    parts = _target_parts(own, counts, most_rows)
    n_idle = 0
    if not shard.is_whole:
        n_idle = int(shard.stack(torch.tensor(len(parts), device=device)).max()) - len(parts)
    for rows, n_known, indices in parts:
        columns = {name: values[rows] for name, values in own.columns.items()}
        yield Prefixes(columns, n_known, own.columns[ITEM_ID][rows, n_known], indices)
    one = torch.ones(1, dtype=torch.int64, device=device)
    # Two columns: tasks like `mlm` predict at the position after the only known one.
    first = {name: values[:1, :2].to(device) for name, values in batch.columns.items()}
    yield from [Prefixes(first, n_known=one, targets=one * 0, indices=-one)] * n_idle


def _target_parts(
    batch: Batch, counts: Int[Tensor, " S"], most_rows: int
) -> list[tuple[Int[Tensor, " P"], ...]]:
    """Split the targets of a batch without empty rows into parts of at most `most_rows`.

    For each target: its row, the number of items before it, and its index in the window.
    """
    items = batch.columns[ITEM_ID]
    could_be = is_before(batch.lengths, items)  # [B, L]
    if IS_TARGET in batch.columns:
        could_be &= batch.columns[IS_TARGET] == 1
    n_left = could_be.flip(1).cumsum(1).flip(1)  # from each event on
    is_target = could_be & (n_left <= counts[batch.sessions][:, None])
    rows, n_known = is_target.nonzero(as_tuple=True)
    if len(rows) == 0:
        return []
    # Count back from the end of the session's targets.
    indices = counts.cumsum(0)[batch.sessions][rows] - n_left[rows, n_known]
    # The scorer cuts each part to its longest prefix, so prefixes of similar length go together.
    order = n_known.argsort(stable=True)
    parts = (
        torch.split(each[order], min(len(items), most_rows)) for each in (rows, n_known, indices)
    )
    return list(zip(*parts, strict=True))


class ShardedRanking:
    """Ranks by `n_at_least` and the items of `top_columns`, without gathering all scores.

    Calls are collectives: every process ranks its own Q targets among the scores of all processes.
    `candidates` are catalogue indices, ascending; `n_best` items are returned for each target.
    """

    def __init__(self, shard: Shard, candidates: Int[Tensor, " C"], n_best: int) -> None:
        self.shard = shard
        self.candidates = candidates
        self.n_best = min(n_best, len(candidates))
        rows = candidates - N_RESERVED
        self.local, _ = shard.local_indices(rows)
        """Columns of the candidates scored here."""
        self.local_column = torch.full((len(candidates) + 1,), -1, device=candidates.device)
        """Column here by candidate; -1 if scored elsewhere, and at the end, which -1 indexes."""
        self.local_column[self.local] = torch.arange(len(self.local), device=candidates.device)
        n_local = (rows % shard.world_size).bincount(minlength=shard.world_size)
        self.widths = n_local.clamp(max=n_best).tolist()

    @in_phase("rank")
    def __call__(
        self, scored: Scored, targets: Int[Tensor, " Q"]
    ) -> tuple[Int[Tensor, " Q"], *Top]:
        """Return the ranks of this process's targets, and the top items of each.

        Args:
            scored: candidates scored here, for the E targets of all processes, and the session's
                items for this process's targets. Where items are sharded, the latter have no score.
            targets: catalogue indices.

        Raises:
            ScoreError: a score is not finite.
        """
        columns = columns_of(targets, self.candidates)
        is_own = (scored.items == targets[:, None]) & (scored.items > 0)  # [Q, N]
        own_scores = scored.item_scores.masked_fill(~is_own, -torch.inf).amax(1)
        if self.shard.is_whole:
            # A target that is no candidate has -inf among the scores, but may be an own item.
            target_scores = scored.scores.at(columns).maximum(own_scores)
            counts = scored.scores.n_at_least(target_scores)
            top = scored.scores.best(self.n_best)
        else:
            counts, top = self._sharded(scored.scores.dense(), columns)
            target_scores = own_scores.where(columns < 0, torch.inf)  # no own item has a score
        is_at_least = (scored.item_scores >= target_scores[:, None]) & (scored.items > 0)
        is_candidate = (columns >= 0) | is_own.any(1)
        ranks = torch.where(is_candidate, counts + is_at_least.sum(1), 0).long()
        items, highest = self.candidates[top[0]], top[1]
        more = scored.items, scored.item_scores
        return ranks, *ranking.merged(items, highest, *more, self.n_best)

    def _sharded(
        self, scores: Float[Tensor, "E c"], columns: Int[Tensor, " Q"]
    ) -> tuple[Int[Tensor, " Q"], Top]:
        """Count the scores at least as high as each target's; return the top columns, too."""
        [every], n_of = self.shard.all_gather(columns)
        # Only the process that scores a target knows its score; the others have -inf.
        own_scores = ranking.scores_at(scores, self.local_column[every])
        target_scores = self.shard.stack(own_scores).amax(0)
        n_local = ranking.n_at_least(scores, target_scores)
        counts = self.shard.send_back(n_local[:, None], n_of, [1] * self.shard.world_size)
        return torch.cat(counts, dim=1).sum(1), self._best(scores, n_of)

    def _best(self, scores: Float[Tensor, "E c"], n_of: list[int]) -> Top:
        """Merge the top columns of all processes."""
        local, local_scores = ranking.top_columns(scores, self.n_best)
        if self.n_best == 0:
            n_own = n_of[self.shard.rank]
            return local[:n_own], local_scores[:n_own]
        columns, found = (
            torch.cat(self.shard.send_back(each, n_of, self.widths), dim=1)
            for each in (self.local[local], local_scores)
        )
        return ranking.top_of(columns, found, min(self.n_best, columns.shape[1]))
