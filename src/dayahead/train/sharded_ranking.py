"""Ranks and top items when each process scores only the candidates whose rows it holds."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.distributed.sharding import Shard
from dayahead.metrics.ranking import (
    check_finite,
    n_at_least,
    scores_at,
    target_ranks,
    top_columns,
)

TopItems = tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]
"""Columns of the best-scored candidates, best first, and their scores."""


class ShardedRanking:
    """The ranks of `target_ranks` and the items of `top_columns`, without gathering all scores.

    Calls are collectives: every process ranks its own Q targets among the scores of all processes.

    Args:
        shard: decides which candidates are scored here.
        candidates: catalogue indices, ascending.
        n_best: candidates with the highest scores to return.
    """

    def __init__(self, shard: Shard, candidates: Int[Tensor, " C"], n_best: int) -> None:
        self.shard = shard
        self.candidates = candidates
        self.n_best = n_best
        rows = candidates - N_RESERVED
        self.local, _ = shard.local_indices(rows)
        """Columns of the candidates scored here."""
        self.local_column = torch.full((len(candidates) + 1,), -1, device=candidates.device)
        """By column; -1 if scored elsewhere, also at the end, where column -1 points."""
        self.local_column[self.local] = torch.arange(len(self.local), device=candidates.device)
        n_local = (rows % shard.world_size).bincount(minlength=shard.world_size)
        self.widths = n_local.clamp(max=n_best).tolist()

    def __call__(
        self, scores: Float[Tensor, "E c"], targets: Int[Tensor, " Q"]
    ) -> tuple[Int[Tensor, " Q"], *TopItems]:
        """Return the ranks of this process's targets, and the top items of each.

        Args:
            scores: of the candidates scored here, for the E targets of all processes.
            targets: catalogue indices.

        Raises:
            ScoreError: a score is not finite.
        """
        columns = _columns_of(targets, self.candidates)
        if self.shard.is_whole:
            return target_ranks(scores, columns), *top_columns(scores, self.n_best)
        [every], n_of = self.shard.all_gather(columns)
        check_finite(scores)
        # Only the process that scores a target knows its score; the others have -inf.
        target_scores = self.shard.stack(scores_at(scores, self.local_column[every])).amax(0)
        n_local = n_at_least(scores, target_scores)
        counts = self.shard.send_back(n_local[:, None], n_of, [1] * self.shard.world_size)
        ranks = torch.where(columns >= 0, torch.cat(counts, dim=1).sum(1), 0)
        return ranks, *self._best(scores, n_of)

    def _best(self, scores: Float[Tensor, "E c"], n_of: list[int]) -> TopItems:
        """Merge the top items of all processes."""
        local, local_scores = top_columns(scores, self.n_best)
        if self.n_best == 0:
            n_own = n_of[self.shard.rank]
            return local[:n_own], local_scores[:n_own]
        columns, found = (
            torch.cat(self.shard.send_back(each, n_of, self.widths), dim=1)
            for each in (self.local[local], local_scores)
        )
        columns, order = columns.sort(1)  # of equal scores the lower column comes first
        best, best_scores = top_columns(found.gather(1, order), self.n_best)
        return columns.gather(1, best), best_scores


def _columns_of(targets: Int[Tensor, " Q"], candidates: Int[Tensor, " C"]) -> Int[Tensor, " Q"]:
    """Index of each target among the candidates, -1 if it is none of them."""
    columns = torch.searchsorted(candidates, targets)
    padded = torch.nn.functional.pad(candidates, (0, 1))  # for targets above the last candidate
    return columns.where(padded[columns] == targets, -1)
