"""Ranks of targets among the candidates, and the candidates with the highest scores."""

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from dayahead.core.errors import ScoreError


def target_ranks(scores: Float32[Tensor, "B C"], targets: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Return the rank of each row's target: 1 + |{j != target : s_j >= s_target}|.

    Ties count against the model.

    Args:
        scores: of the candidates only; the target's score is taken from the same matrix.
        targets: column of each row's target, -1 where the target is no candidate.

    Returns:
        int64 ranks: 1 is best, 0 where the target is no candidate (a miss).

    Raises:
        ScoreError: a score is NaN or infinite, in whichever row.
    """
    check_finite(scores)
    found = n_at_least(scores, scores_at(scores, targets))
    return torch.where(targets >= 0, found, 0).long()


def scores_at(scores: Float32[Tensor, "B C"], columns: Int[Tensor, "B"]) -> Float32[Tensor, "B"]:
    """Return the score at a column of each row, -inf where the column is -1."""
    if scores.shape[1] == 0:
        return scores.new_full((len(scores),), -torch.inf)
    found = scores.gather(1, columns.clamp(min=0).long()[:, None])[:, 0]
    return found.where(columns >= 0, -torch.inf)


def n_at_least(scores: Float32[Tensor, "B C"], score: Float32[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Return for each row the number of candidates with at least a score, int32."""
    # The target itself is one of them. int32 sums six times as fast as int64.
    return (scores >= score[:, None]).sum(dim=1, dtype=torch.int32)


def check_finite(scores: Float32[Tensor, "B C"]) -> None:
    """Raise ScoreError if a score is NaN or infinite, in whichever row."""
    if scores.shape[1] == 0:
        return
    # Two reductions instead of isfinite, which would hold a second matrix: NaN passes through both.
    is_finite = scores.amax(dim=1).isfinite() & scores.amin(dim=1).isfinite()  # [B]
    if not is_finite.all():
        rows = (~is_finite).nonzero().flatten()
        row = int(rows[0])
        column = int((~scores[row].isfinite()).nonzero()[0])
        raise ScoreError(
            f"{len(rows)} of {len(scores)} rows contain scores that are not finite: the first is "
            f"row {row}, candidate column {column} ({scores[row, column].item()}); expected finite "
            f"numbers only. The loss has probably diverged: lower training.learning_rate"
        )


def top_columns(
    scores: Float32[Tensor, "B C"], k: int
) -> tuple[Int[Tensor, "B K"], Float32[Tensor, "B K"]]:
    """Return the columns of each row's k highest scores, best first, and those scores.

    Among equal scores the lower column wins, which torch.topk does not promise. K is `k`, or the
    number of candidates where there are fewer.
    """
    k = min(k, scores.shape[1])
    if k == 0:
        return scores.new_empty((len(scores), 0), dtype=torch.int64), scores[:, :0]
    lowest = scores.topk(k).values[:, -1:]  # [B, 1]
    is_above, is_equal = scores > lowest, scores == lowest
    n_missing = k - is_above.sum(1, keepdim=True)
    is_best = is_above | (is_equal & (is_equal.cumsum(1, dtype=torch.int32) <= n_missing))
    columns = is_best.nonzero()[:, 1].view(len(scores), k)  # ascending in each row
    found, order = scores.gather(1, columns).sort(stable=True, dim=1, descending=True)
    return columns.gather(1, order), found
