"""The best candidates of many sessions at once, each with its own options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dayahead.core.errors import ScoreError
from dayahead.distributed.process import Rank
from dayahead.features.vocabulary import KnownValues
from dayahead.metrics.ranking import merged, top_columns
from dayahead.model.output_layer import rows_per_chunk
from dayahead.model.own_items import Scored, SessionScorer
from dayahead.serve.request import Options
from dayahead.train.batches import Sessions, sorted_rows

SCORES_MIB = 64
"""MiB of the scores of a batch."""
BATCH = 512
"""Maximum number of sessions in a batch."""


@dataclass(frozen=True)
class RankingModel:
    """The model's scorer and candidates, as ranking needs them."""

    scorer: SessionScorer
    candidates: Int[Tensor, " C"]
    """Vocabulary indices, ascending."""
    popularity: Float[Tensor, " C"]
    """Scores of the candidates after a cold session whose options say `popularity`."""


@dataclass(frozen=True)
class Ranked:
    """The best items of S sessions, best first."""

    items: NDArray[np.int64]
    """[S, K] vocabulary indices; items in `others` are numbered after the vocabulary."""
    scores: NDArray[np.float32]
    """[S, K]"""
    counts: NDArray[np.int64]
    """[S] number of items: fewer than requested if fewer may be recommended."""
    is_cold: NDArray[np.bool_]
    """[S] the model knows no item of the session or of its past."""
    is_unknown: NDArray[np.bool_]
    """[E] for each event of the sessions: the model does not know the item."""
    others: KnownValues
    """Raw ids of items that the model does not know."""

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """[S, K] which of the items and scores are valid."""
        return np.asarray(np.arange(self.items.shape[1]) < self.counts[:, None])


@dataclass(frozen=True)
class Named:
    """The items that options name, by vocabulary index or by number after the vocabulary."""

    allow: NDArray[np.int32] | None
    deny: NDArray[np.int32]

    def is_left_out(self, items: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Return whether each item must not be recommended."""
        is_denied = np.isin(items, self.deny)
        return is_denied if self.allow is None else is_denied | ~np.isin(items, self.allow)


@dataclass(frozen=True)
class Available:
    """From and until when candidates are available, and the time of each session."""

    start: Int[Tensor, " n"]
    """By catalogue index, microseconds since 1970, like `end` and `times`."""
    end: Int[Tensor, " n"]
    times: Int[Tensor, " S"]

    def __call__(self, items: Int[Tensor, "... M"], rows: NDArray[np.int64]) -> Bool[Tensor, "B M"]:
        """Return which items, the same for all or [B, M], some sessions may get.

        Items that follow the catalogue are always available.
        """
        times = self.times[torch.from_numpy(rows)][:, None]
        known = items.clamp(max=len(self.start) - 1)
        is_in = (self.start[known] <= times) & (times < self.end[known])
        return is_in | (items >= len(self.start))


@dataclass(frozen=True)
class Filter:
    """Which candidates each session may get: all except items seen and items left out."""

    options: Sequence[Options]
    """Options of each session."""
    named: Mapping[int, Named]
    """Items that options name, by `id` of the options."""
    seen: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Session and candidate of each item to leave out because it was seen."""
    candidates: Int[Tensor, " C"]
    available: Available | None
    """Which items are available when; None: all, always."""

    @cached_property
    def left_out(self) -> dict[int, Bool[Tensor, " C"]]:
        """Candidates that options leave out, by `id` of the options."""
        items = self.candidates.numpy()
        return {key: torch.from_numpy(each.is_left_out(items)) for key, each in self.named.items()}

    def __call__(self, scores: Float[Tensor, "B C"], rows: NDArray[np.int64]) -> Tensor:
        """Replace the scores of candidates that a session may not get by -inf."""
        if self.available is not None:
            scores = scores.masked_fill(~self.available(self.candidates, rows), -torch.inf)
        own = [self.left_out.get(id(self.options[row])) for row in rows]
        row_of = np.full(len(self.options), -1)
        row_of[rows] = np.arange(len(rows))
        is_asked = row_of[self.seen[0]] >= 0
        if not is_asked.any() and all(each is None for each in own):
            return scores
        # The popularity is one row expanded to all sessions, which must not be written to.
        scores = scores.clone()
        for row, excluded in enumerate(own):
            if excluded is not None:
                scores[row, excluded] = -torch.inf
        seen_rows, columns = row_of[self.seen[0][is_asked]], self.seen[1][is_asked]
        scores[torch.from_numpy(seen_rows), torch.from_numpy(columns)] = -torch.inf
        return scores

    def of_own_items(self, scored: Scored, rows: NDArray[np.int64]) -> Float[Tensor, "B N"]:
        """Return the scores of own items that are no candidates; -inf if not allowed."""
        scores = scored.item_scores.clone()
        if self.available is not None:
            scores[~self.available(scored.items, rows)] = -torch.inf
        for number, options in enumerate(self.options[row] for row in rows):
            if options.exclude_seen:
                scores[number] = -torch.inf
            elif id(options) in self.named:
                is_out = self.named[id(options)].is_left_out(scored.items[number].numpy())
                scores[number, torch.from_numpy(is_out)] = -torch.inf
        return scores


def rank_sessions(
    model: RankingModel, sessions: Sessions, is_cold: NDArray[np.bool_], allowed: Filter
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Rank the candidates after each session; batches hold sessions of similar length.

    Args:
        model: scorer and candidates.
        sessions: S sessions to continue, encoded, none empty.
        is_cold: [S] the model knows no item of the session or of its past.
        allowed: the candidates of each session, and its options.

    Returns:
        `items`, `scores` and `counts` of `Ranked`.

    Raises:
        ScoreError: a score is NaN or infinite.
    """
    cold_start = np.array([each.cold_start for each in allowed.options])
    longest = int(sessions.lengths.max())
    # Items of the session that are no candidates may be recommended too.
    n_most = len(model.candidates) + longest
    wanted = np.array([min(each.top_k, n_most) for each in allowed.options], np.int64)
    is_popular = is_cold & (cold_start == "popularity")
    is_refused = is_cold & (cold_start == "refuse")
    n, k = len(sessions), int(wanted.max(initial=0))
    items, highest, counts = np.zeros((n, k), np.int64), np.zeros((n, k), np.float32), wanted * 0
    size = min(BATCH, rows_per_chunk(len(model.candidates), SCORES_MIB))

    def keep(rows: NDArray[np.int64], best: Tensor, scores: Tensor) -> None:
        _check_finite(scores)
        items[rows, : best.shape[1]], highest[rows, : best.shape[1]] = best.numpy(), scores.numpy()
        n_allowed = (scores > -torch.inf).sum(1).numpy()
        counts[rows] = np.minimum(n_allowed, wanted[rows])

    for rows in _batches(np.flatnonzero(~is_refused & ~is_popular), sessions, size):
        batch = sessions.gather(torch.from_numpy(rows), Rank(0, 1))
        # One more column: some tasks predict at the position of the next event.
        inputs = {name: pad(values, (0, 1)) for name, values in batch.columns.items()}
        scored = model.scorer(inputs, batch.lengths)
        columns, scores = top_columns(allowed(scored.scores.dense(), rows), k)
        more = scored.items, allowed.of_own_items(scored, rows)
        keep(rows, *merged(model.candidates[columns], scores, *more, k))
    for rows in _batches(np.flatnonzero(is_popular), sessions, size):
        columns, scores = top_columns(allowed(model.popularity.expand(len(rows), -1), rows), k)
        keep(rows, model.candidates[columns], scores)
    best = np.s_[:, : counts.max(initial=0)]
    return items[best], highest[best], counts


def _batches(rows: NDArray[np.int64], sessions: Sessions, size: int) -> list[NDArray[np.int64]]:
    chosen = torch.from_numpy(rows)
    return [chosen[part].numpy() for part in sorted_rows(sessions.lengths[chosen], size)]


def _check_finite(best: Float[Tensor, "B K"]) -> None:
    """Check the best scores: NaN sorts above all others, -inf marks items not allowed."""
    if not (best < torch.inf).all():
        raise ScoreError(
            "scores of the model are not finite: it is damaged, or its loss has diverged; restore "
            "its folder, or fit it again with a lower training.learning_rate"
        )
