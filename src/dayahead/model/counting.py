"""Non-neural baselines that count: item popularity, transitions and co-occurrence."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Float32, Int
from scipy.sparse import csr_array
from torch import Tensor

from dayahead.config.model import ModelSections
from dayahead.core.columns import ITEM_ID, N_RESERVED, WORTH
from dayahead.metrics.scores import Scores, SharedScores, scores_of_cells
from dayahead.model.model import CountingModel, Floats, Ints, PairScorer, associations
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.own_items import MethodScorer, Reminders, SessionScorer, with_reminders
from dayahead.model.state_rules import COUNTS, Limits, Rows

PAIRS = ("before", "after", "counts")
"""Names of tensors in model.safetensors."""


class Baseline(CountingModel):
    """Popularity: scores items by their events in the windows of the last fit; the base class."""

    reminders = Reminders("score", 0.0, 1.0)
    """How a session's own items are ranked."""

    @classmethod
    def build(cls, settings: ModelSections) -> "Baseline":
        """Build it from its settings."""
        return cls()

    def fallback(self, rows: Ints) -> Float32[Tensor, " C"]:
        """Return the popularity of items, scaled to [0, 1), to rank those without another score."""
        popularity = self.popularity[rows]
        scaled = popularity / (popularity.max(initial=0.0) + 1)
        return torch.from_numpy(scaled.astype(np.float32))

    def method_scorer(self, candidates: Int[Tensor, " C"]) -> MethodScorer:
        """Return a function that scores the candidates (vocabulary indices) without reminders."""
        popularity = self.popularity[candidates.cpu().numpy() - N_RESERVED]
        shared = SharedScores(torch.from_numpy(popularity.astype(np.float32)))
        nothing = np.empty(0, np.int64)
        return lambda columns, n_known: scores_of_cells(
            shared, len(n_known), (nothing, nothing), torch.empty(0)
        )

    def session_scorer(
        self, candidates: Int[Tensor, " C"], *, overwrites: bool = False
    ) -> SessionScorer:
        """Return a function that scores candidates and each session's own items."""
        reminders = self.reminders.after_fit(*self.ends.tolist())
        return with_reminders(self.method_scorer(candidates), candidates, reminders)

    def scorer(self, candidates: Int[Tensor, " C"], *, overwrites: bool = False) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices)."""
        scored = self.session_scorer(candidates)
        return lambda columns, n_known: scored(columns, n_known).scores.dense()


class Transitions(Baseline):
    """Scores items by how often they followed the last known one.

    Counts of earlier fits are multiplied by `decay` at each fit. Items that never followed it rank
    below, by popularity.
    """

    pairs_are = "how often one item follows the other, relative to both items' totals"

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.pairs = csr_array((0, 0), dtype=np.float64)
        """[n_items, n_items] counts of transitions from the row's item to the column's."""
        self._new: list[tuple[Ints, Ints, Floats]] = []

    @classmethod
    def build(cls, settings: ModelSections) -> "Transitions":
        """Build it from its settings."""
        return cls(settings.model.decay)

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the counts to the first `sizes[item_id]` items of the catalogue."""
        super().grow(sizes)
        self.pairs.resize((self.n_items, self.n_items))

    def start_window(self, end: int) -> None:
        """Reset the popularity and decay the pairs."""
        super().start_window(end)
        self.pairs = (self.pairs * self.decay).tocsr()
        # A decay of 0 would leave stored zeros, which `method_scorer` would rank as counts.
        self.pairs.eliminate_zeros()

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Count train sessions: right-padded columns [B, L].

        A pair counts 1, or the worth of its second event.
        """
        super().count(columns, lengths)
        items = (columns[ITEM_ID] - N_RESERVED).numpy()
        worth = columns[WORTH].double().numpy() if WORTH in columns else np.ones(items.shape)
        for before, after in self.pairs_of(items, lengths.numpy()):
            self._new.append((items.flat[before], items.flat[after], worth.flat[after]))

    @staticmethod
    def pairs_of(items: Ints, lengths: Ints) -> list[tuple[Ints, Ints]]:
        """List pairs (an event, one after it) of padded sessions [B, L], by their flat indices."""
        return [neighbours_at(items, lengths, 1)]

    def finish_window(self) -> float | None:
        """Add the window's pairs to the earlier ones."""
        if self._new:
            before, after, worth = (np.concatenate(part) for part in zip(*self._new, strict=True))
            # csr_array adds up the worth of equal pairs.
            self.pairs += csr_array((worth, (before, after)), self.pairs.shape)
            self._new.clear()
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity [n_items], and the pairs `before`, `after` with their `counts`."""
        cells = self.pairs.tocoo()
        arrays = (*(index.astype(np.int64) for index in cells.coords), cells.data)
        pairs = dict(zip(PAIRS, map(torch.from_numpy, arrays), strict=True))
        return super().state_dict() | pairs

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all counts."""
        super().load_state_dict(state)
        before, after, counts = (state[name].numpy() for name in PAIRS)
        self.pairs = csr_array((counts, (before, after)), (self.n_items, self.n_items))

    def row_rules(self) -> Iterable[Rows]:
        """Return the rules of the pairs."""
        before, after, counts = PAIRS
        items: Limits = (0, self.n_items - 1)
        return [Rows(PAIRS, {before: items, after: items, counts: COUNTS})]

    def pair_scorer(self) -> PairScorer:
        """Return a function of the counts of pairs, both ways, relative to both items' totals."""
        both = (self.pairs + self.pairs.T).tocsr()
        totals = np.asarray(both.sum(axis=1))

        def scores(items: Ints) -> Floats:
            rows = items - N_RESERVED
            return associations(both[rows].toarray(), totals[rows], totals)

        return scores

    def method_scorer(self, candidates: Int[Tensor, " C"]) -> MethodScorer:
        """Return a function that scores the candidates (vocabulary indices).

        A score is the count's rank among the distinct counts, from 1, plus popularity scaled below
        1. Float32 is exact for up to 16 M distinct counts; popularity added to high ranks is
        rounded, and may then tie.
        """
        rows = candidates.cpu().numpy() - N_RESERVED
        fallback = SharedScores(self.fallback(rows))
        ranks = self.pairs[:, rows]
        ranks.data = np.unique(ranks.data, return_inverse=True)[1] + 1.0

        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Scores:
            items = columns[ITEM_ID].gather(1, (n_known - 1)[:, None])[:, 0]
            last = items.cpu().numpy() - N_RESERVED
            known = np.flatnonzero((last >= 0) & (last < self.n_items))
            found = ranks[last[known]].tocoo()
            cells = known[found.coords[0]], found.coords[1]
            values = torch.from_numpy(found.data.astype(np.float32))
            values += fallback.scores[torch.from_numpy(cells[1])]
            return scores_of_cells(fallback, len(n_known), cells, values)

        return scores


class Cooccurrence(Transitions):
    """Scores items by how often they were in one session with the last known one, in any order.

    Each pair of events of a session counts once in each direction. Otherwise like `Transitions`.
    """

    pairs_are = "how often both items are in one session, relative to both items' totals"

    @staticmethod
    def pairs_of(items: Ints, lengths: Ints) -> list[tuple[Ints, Ints]]:
        """List all pairs of events of different items in padded sessions [B, L], both ways."""
        found = []
        for distance in range(1, items.shape[1]):
            before, after = neighbours_at(items, lengths, distance)
            differ = items.flat[before] != items.flat[after]
            found += [(before[differ], after[differ]), (after[differ], before[differ])]
        return found


def neighbours_at(items: Ints, lengths: Ints, distance: int) -> tuple[Ints, Ints]:
    """List the flat indices of events that are `distance` apart in padded sessions [B, L]."""
    before = np.flatnonzero(np.arange(items.shape[1]) < lengths[:, None] - distance)
    return before, before + distance
