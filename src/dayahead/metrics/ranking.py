"""Ranks of targets among the candidates, and the candidates with the highest scores."""

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from dayahead.core.errors import ScoreError

CACHED_SCORES = 2**18
"""Scores that are summed and compared at once on a CPU: 1 MiB, which stays in its cache."""
EXACT_COUNTS = 2**24
"""From here on, float32 does not hold every integer."""


def scores_at(scores: Float32[Tensor, "B C"], columns: Int[Tensor, "B"]) -> Float32[Tensor, "B"]:
    """Return the score at a column of each row, -inf where the column is -1."""
    if scores.shape[1] == 0:
        return scores.new_full((len(scores),), -torch.inf)
    found = scores.gather(1, columns.clamp(min=0).long()[:, None])[:, 0]
    return found.where(columns >= 0, -torch.inf)


def n_at_least(scores: Float32[Tensor, "B C"], score: Float32[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Return for each row the number of candidates with at least a score, int32.

    For the score of a target this is its rank, 1 + |{j != target : s_j >= s_target}|: ties count
    against the model.

    Raises:
        ScoreError: a score is NaN or infinite, in whichever row.
    """
    # Floats of 0 and 1 are summed three times as fast as booleans.
    dtype = torch.float32 if scores.shape[1] < EXACT_COUNTS else torch.float64
    sums, counts = [], []
    parts = (torch.split(each, _rows_per_part(scores)) for each in (scores, score[:, None]))
    for part, least in zip(*parts, strict=True):
        sums.append(part.sum(1))
        is_at_least = torch.ge(part, least, out=torch.empty_like(part, dtype=dtype))
        counts.append(is_at_least.sum(1))  # the target itself is one of them
    # A sum is cheap and keeps NaN and infinity. It may also overflow, hence the exact check.
    if not torch.cat(sums).isfinite().all():
        check_finite(scores)
    return torch.cat(counts).int()


def _rows_per_part(scores: Float32[Tensor, "B C"]) -> int:
    n_rows, n_columns = scores.shape
    return max(1, n_rows if scores.is_cuda else CACHED_SCORES // max(1, n_columns))


def check_finite(scores: Float32[Tensor, "B C"]) -> None:
    """Raise ScoreError where a score is NaN or infinite."""
    # Two reductions, which NaN passes through: isfinite of all scores would take a second matrix.
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
    # One more than k shows whether the k-th score is tied.
    highest, columns = scores.topk(min(k + 1, scores.shape[1]))
    is_tied = (highest[:, k - 1 : k] == highest[:, k:]).any(1)
    columns = columns[:, :k].sort(1).values
    for rows in torch.split(is_tied.nonzero()[:, 0], _rows_per_part(scores)):
        columns[rows] = _lowest_columns(scores[rows], highest[rows, k - 1 : k], k)
    found, order = scores.gather(1, columns).sort(stable=True, dim=1, descending=True)
    return columns.gather(1, order), found


def _lowest_columns(
    scores: Float32[Tensor, "B C"], lowest: Float32[Tensor, "B 1"], k: int
) -> Int[Tensor, "B K"]:
    """Columns, ascending, of the k highest scores, the lower columns of those equal to `lowest`."""
    is_above, is_equal = ~(scores <= lowest), scores == lowest  # NaN is above, as in topk
    n_missing = k - is_above.sum(1, keepdim=True)
    # int32, because the default int64 would take twice the memory of the scores.
    is_best = is_above | (is_equal & (is_equal.cumsum(1, dtype=torch.int32) <= n_missing))
    return is_best.nonzero()[:, 1].view(len(scores), k)


def top_of(
    columns: Int[Tensor, "B N"], scores: Float32[Tensor, "B N"], k: int
) -> tuple[Int[Tensor, "B k"], Float32[Tensor, "B k"]]:
    """Return each row's k best of N columns below 2^31, in any order, and their scores.

    Best first; among equal scores the lower column wins. N is not much larger than k: all scores
    are copied.
    """
    # As integers, the bits of floats have the order of their magnitudes. NaN is above, as in topk.
    bits = (scores + 0.0).masked_fill(scores.isnan(), torch.inf).view(torch.int32).long()
    keys = ((bits ^ (bits >> 31 & 0x7FFFFFFF)) << 32) - columns
    best = keys.topk(k).indices
    return columns.gather(1, best), scores.gather(1, best)


def merged(
    items: Int[Tensor, "B K"],
    scores: Float32[Tensor, "B K"],
    more_items: Int[Tensor, "B N"],
    more_scores: Float32[Tensor, "B N"],
    k: int,
) -> tuple[Int[Tensor, "B k"], Float32[Tensor, "B k"]]:
    """Return each row's k best of K items, best first, and N more in any order, and their scores.

    Of equal scores the former come first.
    """
    best, highest = top_columns(torch.cat([scores, more_scores], 1), k)
    return torch.cat([items, more_items], 1).gather(1, best), highest
