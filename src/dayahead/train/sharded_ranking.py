"""Ranks and best items where each process scores the candidates whose rows it holds."""

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

Answers = tuple[Int[Tensor, " Q"], Int[Tensor, "Q K"], Float[Tensor, "Q K"]]
"""Ranks of targets; columns of the candidates scored best, best first, and their scores."""


class ShardedRanking:
    """Ranks as `target_ranks` and `best_columns` have them, without all scores in one place.

    All processes ask in step, each of its own questions.

    Args:
        shard: which items are scored here.
        candidates: catalogue indices, ascending.
        n_best: candidates with the highest scores to find.
    """

    def __init__(self, shard: Shard, candidates: Int[Tensor, " C"], n_best: int) -> None:
        self.shard = shard
        self.candidates = candidates
        self.n_best = n_best
        rows = candidates - N_RESERVED
        self.held, _ = shard.local_indices(rows)
        self.place_of = torch.full((len(candidates) + 1,), -1, device=candidates.device)
        self.place_of[self.held] = torch.arange(len(self.held), device=candidates.device)
        n_held = (rows % shard.world_size).bincount(minlength=shard.world_size)
        self.widths = n_held.clamp(max=n_best).tolist()

    def __call__(self, scores: Float[Tensor, "E c"], targets: Int[Tensor, " Q"]) -> Answers:
        """Answer this process's questions.

        Args:
            scores: of the candidates held here, for the questions of all processes.
            targets: catalogue indices.

        Raises:
            ScoreError: a score is not finite.
        """
        columns = _columns_of(targets, self.candidates)
        if self.shard.is_whole:
            return target_ranks(scores, columns), *top_columns(scores, self.n_best)
        [every], n_of = self.shard.all_gather(columns)
        n_ahead = self._n_not_worse(scores, self.place_of[every])
        found = self.shard.send_back(n_ahead[:, None], n_of, [1] * self.shard.world_size)
        ranks = torch.where(columns >= 0, torch.cat(found, dim=1).sum(1), 0)
        return ranks, *self._best(scores, n_of)

    def _n_not_worse(self, scores: Float[Tensor, "E c"], places: Int[Tensor, " E"]) -> Tensor:
        """Count those held here that are not worse than the target, wherever that is held; [E]."""
        check_finite(scores)
        return n_at_least(scores, self.shard.stack(scores_at(scores, places)).amax(0))

    def _best(
        self, scores: Float[Tensor, "E c"], n_of: list[int]
    ) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
        """Find the best of each process's best."""
        places, own = top_columns(scores, self.n_best)
        if self.n_best == 0:
            n_asked = n_of[self.shard.rank]
            return places[:n_asked], own[:n_asked]
        columns, found = (
            torch.cat(self.shard.send_back(each, n_of, self.widths), dim=1)
            for each in (self.held[places], own)
        )
        columns, order = columns.sort(1)  # among equal scores the lower is taken
        best, of_best = top_columns(found.gather(1, order), self.n_best)
        return columns.gather(1, best), of_best


def _columns_of(targets: Int[Tensor, " Q"], candidates: Int[Tensor, " C"]) -> Int[Tensor, " Q"]:
    """Place of each target among the candidates, -1 where it is none of them."""
    columns = torch.searchsorted(candidates, targets)
    with_end = torch.nn.functional.pad(candidates, (0, 1))  # what is found behind the last
    return columns.where(with_end[columns] == targets, -1)
