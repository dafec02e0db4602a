"""Scores of candidates after prefixes: of each one, or of a few above those that all share."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dayahead.core.ragged import step_of_each
from dayahead.metrics.ranking import check_finite, n_at_least, scores_at, top_columns, top_of

FEW = 16
"""Ranking one score of `FewScores` takes as long as ranking so many of a dense matrix."""
Top = tuple[Int[Tensor, "B K"], Float32[Tensor, "B K"]]
"""Columns of the best-scored candidates, best first, and their scores."""


@dataclass(frozen=True)
class DenseScores:
    """A score for each candidate after each prefix."""

    scores: Float32[Tensor, "B C"]

    def dense(self) -> Float32[Tensor, "B C"]:
        """Return every score."""
        return self.scores

    def to(self, device: torch.device) -> "DenseScores":
        """Move everything to a device."""
        return DenseScores(self.scores.to(device))

    def at(self, columns: Int[Tensor, " B"]) -> Float32[Tensor, " B"]:
        """Return the score at a column of each row, -inf where the column is -1."""
        return scores_at(self.scores, columns)

    def replaced(self, columns: Int[Tensor, "B N"], values: Float32[Tensor, "B N"]) -> "Scores":
        """Return them with other scores at some distinct columns of each row; -1: no column."""
        rows, places = (columns >= 0).nonzero(as_tuple=True)
        scores = self.scores.clone()
        scores[rows, columns[rows, places]] = values[rows, places]
        return DenseScores(scores)

    def floor(self) -> Float32[Tensor, "B 1"]:
        """Return the lowest score of each row; 0 without candidates."""
        if self.scores.shape[1] == 0:
            return torch.zeros(len(self.scores), 1, device=self.scores.device)
        return self.scores.amin(1, keepdim=True)

    def n_at_least(self, score: Float32[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Count each row's candidates with at least a score.

        Raises:
            ScoreError: a score is NaN or infinite.
        """
        return n_at_least(self.scores, score)

    def best(self, k: int) -> Top:
        """Return the best columns and their scores."""
        return top_columns(self.scores, k)


class SharedScores:
    """Scores [C] that candidates have after every prefix."""

    def __init__(self, scores: Float32[Tensor, " C"]) -> None:
        self.scores = scores
        self.padded = pad(scores, (0, 1), value=-torch.inf)
        """[C + 1] so that column -1 reads -inf."""
        self._first: Int[Tensor, " k"] = scores.new_empty(0, dtype=torch.int64)

    @cached_property
    def ascending(self) -> Float32[Tensor, " C"]:
        """The sorted scores."""
        if not self.scores.is_cpu:
            return self.scores.sort().values
        # numpy's sort of float32 uses vector instructions: torch's takes thirty times as long.
        return torch.from_numpy(np.sort(self.scores.numpy()))

    def first(self, n: int) -> Int[Tensor, " n"]:
        """Return the n best columns, best first; of equal ones the lower column comes first."""
        if len(self._first) < min(n, len(self.scores)):
            self._first = top_columns(self.scores[None], n)[0][0]
        return self._first[:n]

    def to(self, device: torch.device) -> "SharedScores":
        """Move everything to a device."""
        return self if self.scores.device == device else SharedScores(self.scores.to(device))


@dataclass(frozen=True)
class FewScores:
    """Scores of a few candidates after each prefix; all others have those that prefixes share.

    Ranking costs as much as there are few, however large the catalogue is.
    """

    shared: SharedScores
    columns: Int[Tensor, "B K"]
    """Distinct columns with a score of their own; -1 where a prefix has fewer."""
    scores: Float32[Tensor, "B K"]

    def dense(self) -> Float32[Tensor, "B C"]:
        """Return every score."""
        dense = self.shared.scores.repeat(len(self.columns), 1)
        rows, places = (self.columns >= 0).nonzero(as_tuple=True)
        dense[rows, self.columns[rows, places]] = self.scores[rows, places]
        return dense

    def to(self, device: torch.device) -> "FewScores":
        """Move everything to a device."""
        shared = self.shared.to(device)
        return FewScores(shared, self.columns.to(device), self.scores.to(device))

    def at(self, columns: Int[Tensor, " B"]) -> Float32[Tensor, " B"]:
        """Return the score at a column of each row, -inf where the column is -1."""
        is_same = (self.columns == columns[:, None]) & (self.columns >= 0)
        own = self.scores.where(is_same, 0.0).sum(1)  # of one at most
        return own.where(is_same.any(1), self.shared.padded[columns])

    def replaced(self, columns: Int[Tensor, "B N"], values: Float32[Tensor, "B N"]) -> "Scores":
        """Return them with other scores at some distinct columns of each row; -1: no column."""
        kept = self.columns.clone()
        for each in columns.T:  # [B, K, N] at once would be large
            kept[kept == each[:, None]] = -1
        return FewScores(
            self.shared, torch.cat([kept, columns], 1), torch.cat([self.scores, values], 1)
        )

    def floor(self) -> Float32[Tensor, "B 1"]:
        """Return the lowest score of each row, with the shared ones of its own candidates."""
        lowest = self.shared.ascending[:1].sum().expand(len(self.columns), 1)
        own = self.scores.where(self.columns >= 0, lowest)
        return torch.cat([lowest, own], 1).amin(1, keepdim=True)

    def n_at_least(self, score: Float32[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Count each row's candidates with at least a score.

        Raises:
            ScoreError: a score is NaN or infinite.
        """
        is_own, shared = self.columns >= 0, self.shared.ascending
        if not (self.scores[is_own].isfinite().all() and shared.isfinite().all()):
            check_finite(self.dense())
        n_shared = len(shared) - torch.searchsorted(shared, score)
        is_counted_twice = is_own & (self.shared.padded[self.columns] >= score[:, None])
        is_at_least = is_own & (self.scores >= score[:, None])
        return (n_shared - is_counted_twice.sum(1) + is_at_least.sum(1)).int()

    def best(self, k: int) -> Top:
        """Return the best columns and their scores."""
        k = min(k, len(self.shared.scores))
        # Enough of the others, however many of them have a score of their own.
        others = self.shared.first(k + self.columns.shape[1])
        place_of = torch.full_like(self.shared.padded, len(others), dtype=torch.int64)
        place_of[others] = torch.arange(len(others), device=others.device)
        # A candidate's own score replaces the shared one; what is no other has the last place.
        is_own = self.columns.new_zeros(len(self.columns), len(others) + 1, dtype=torch.bool)
        is_own.scatter_(1, place_of[self.columns], True)
        shared = self.shared.scores[others].where(~is_own[:, :-1], -torch.inf)
        scores = torch.cat([self.scores.where(self.columns >= 0, -torch.inf), shared], 1)
        columns = torch.cat([self.columns, others.expand(len(self.columns), -1)], 1)
        return top_of(columns, scores, k)


Scores = DenseScores | FewScores
"""Scores [B, C] of C candidates after B prefixes, and what is ranked by them."""


def scores_of_cells(
    shared: SharedScores,
    n_rows: int,
    cells: tuple[NDArray[np.integer], NDArray[np.integer]],
    scores: Float32[Tensor, " N"],
) -> Scores:
    """Return shared scores with others in some cells (rows, columns), distinct, ordered by row."""
    rows, columns = (torch.from_numpy(each.astype(np.int64)) for each in cells)
    counts = rows.bincount(minlength=n_rows)
    width = int(counts.max()) if n_rows else 0
    if width * FEW > len(shared.scores):
        dense = shared.scores.repeat(n_rows, 1)
        dense[rows, columns] = scores
        return DenseScores(dense)
    places = torch.from_numpy(step_of_each(counts.numpy()))
    found = FewScores(shared, torch.full((n_rows, width), -1), torch.zeros(n_rows, width))
    found.columns[rows, places], found.scores[rows, places] = columns, scores
    return found
