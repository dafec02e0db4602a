"""The best candidates of many sessions at once, each with its own options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dayahead.distributed.process import Rank
from dayahead.metrics.ranking import top_columns
from dayahead.model.output_layer import Scorer, rows_per_chunk
from dayahead.serve.request import Options
from dayahead.train.batches import Sessions, sorted_rows

SCORES_MIB = 64
"""Of the scores of a batch, and at most so many sessions:"""
BATCH = 512


@dataclass(frozen=True)
class Ranked:
    """The best items of S sessions, best first."""

    columns: NDArray[np.int64]
    """[S, K] among the candidates."""
    scores: NDArray[np.float32]
    """[S, K]"""
    counts: NDArray[np.int64]
    """[S] of these, how many there are: fewer than asked for where fewer may be recommended."""
    is_cold: NDArray[np.bool_]
    """[S] the model knows no item of the session or of its past."""
    is_unknown: NDArray[np.bool_]
    """[E] of the sessions' events: the model does not know the item."""

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """[S, K] which of the columns and scores count."""
        return np.asarray(np.arange(self.columns.shape[1]) < self.counts[:, None])


@dataclass(frozen=True)
class Filter:
    """Which candidates each session may get: all but the items seen and those left out."""

    options: Sequence[Options]
    """Of each session."""
    left_out: Mapping[int, Bool[Tensor, " C"]]
    """Candidates that options leave out, by the identity of the options."""
    seen: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Session and candidate of each item to leave out because it was seen."""

    def __call__(self, scores: Float[Tensor, "B C"], rows: NDArray[np.int64]) -> Tensor:
        """Replace the scores of what some sessions may not get by -inf."""
        own = [self.left_out.get(id(self.options[row])) for row in rows]
        row_of = np.full(len(self.options), -1)
        row_of[rows] = np.arange(len(rows))
        is_asked = row_of[self.seen[0]] >= 0
        if not is_asked.any() and all(each is None for each in own):
            return scores
        scores = scores.clone()
        for row, excluded in enumerate(own):
            if excluded is not None:
                scores[row, excluded] = -torch.inf
        seen_rows, columns = row_of[self.seen[0][is_asked]], self.seen[1][is_asked]
        scores[torch.from_numpy(seen_rows), torch.from_numpy(columns)] = -torch.inf
        return scores


def rank_sessions(
    sessions: Sessions,
    is_cold: NDArray[np.bool_],
    is_unknown: NDArray[np.bool_],
    scorer: Scorer,
    popularity: Float[Tensor, " C"],
    allowed: Filter,
) -> Ranked:
    """Rank the candidates after each session; batches hold sessions of like length.

    Args:
        sessions: encoded, none empty.
        is_cold: of each session, that the model knows no item.
        is_unknown: of each event, that the model does not know its item.
        scorer: of the candidates.
        popularity: their scores after a cold session whose options say `popularity`.
        allowed: what each session may get.
    """
    cold_start = np.array([each.cold_start for each in allowed.options])
    wanted = np.array([each.top_k for each in allowed.options], np.int64)
    is_popular = is_cold & (cold_start == "popularity")
    is_refused = is_cold & (cold_start == "refuse")
    n, k = len(sessions), min(int(wanted.max(initial=0)), len(popularity))
    columns, highest = np.zeros((n, k), np.int64), np.zeros((n, k), np.float32)
    found = Ranked(columns, highest, np.zeros(n, np.int64), is_cold, is_unknown)
    size = min(BATCH, rows_per_chunk(len(popularity), SCORES_MIB))
    for rows in _batches(np.flatnonzero(~is_refused & ~is_popular), sessions, size):
        batch = sessions.gather(torch.from_numpy(rows), Rank(0, 1))
        # One more column: some tasks predict at the position of the next event.
        inputs = {name: pad(values, (0, 1)) for name, values in batch.columns.items()}
        _keep_best(found, rows, allowed(scorer(inputs, batch.lengths), rows), wanted)
    for rows in _batches(np.flatnonzero(is_popular), sessions, size):
        _keep_best(found, rows, allowed(popularity.expand(len(rows), -1), rows), wanted)
    return found


def _batches(rows: NDArray[np.int64], sessions: Sessions, size: int) -> list[NDArray[np.int64]]:
    chosen = torch.from_numpy(rows)
    return [chosen[part].numpy() for part in sorted_rows(sessions.lengths[chosen], size)]


def _keep_best(
    found: Ranked, rows: NDArray[np.int64], scores: Float[Tensor, "B C"], wanted: NDArray[np.int64]
) -> None:
    columns, highest = top_columns(scores, found.columns.shape[1])
    found.columns[rows], found.scores[rows] = columns.numpy(), highest.numpy()
    n_allowed = (highest > -torch.inf).sum(1).numpy()
    found.counts[rows] = np.minimum(n_allowed, wanted[rows])
