"""Non-neural baselines: item popularity and first-order transitions."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from dayahead.config.params import ModelConfig
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.sharding import WHOLE
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.tasks import is_before

STATE = ("popularity", "before", "after", "counts")
"""Names of tensors in model.safetensors."""


class CountingModel:
    """Scores items by counts over train sessions; reads at most the last known item.

    popularity    an item's events in the windows of the last fit
    transitions   how often an item followed the last known one, counts of earlier fits times
                  `decay` per fit; items that never followed it rank below, by popularity
    """

    shard = WHOLE
    """Every process counts everything."""
    sharded: frozenset[str] = frozenset()

    def __init__(self, config: ModelConfig) -> None:
        self.counts_transitions = config.architecture == "transitions"
        self.decay = config.decay
        self.popularity = np.zeros(0, np.float64)
        self.transitions = csr_array((0, 0), dtype=np.float64)
        """[n_items, n_items], from the row's item to the column's."""
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return len(self.popularity)

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the counts to the first `sizes[item_id]` items of the catalogue."""
        n_items = sizes[ITEM_ID]
        self.popularity = np.pad(self.popularity, (0, n_items - self.n_items))
        self.transitions.resize((n_items, n_items))

    def start_window(self) -> None:
        """Reset the popularity and decay the transitions."""
        self.popularity[:] = 0
        self.transitions = (self.transitions * self.decay).tocsr()
        self.transitions.eliminate_zeros()

    def count(self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"]) -> None:
        """Count train sessions: right-padded vocabulary indices."""
        rows = items.numpy() - N_RESERVED
        events = rows[is_before(lengths, items).numpy()]
        self.popularity += np.bincount(events, minlength=self.n_items)
        if self.counts_transitions:
            has_next = is_before(lengths - 1, items[:, 1:]).numpy()
            self._pairs.append((rows[:, :-1][has_next], rows[:, 1:][has_next]))

    def finish_window(self) -> None:
        """Add the window's transitions to the earlier ones."""
        if self._pairs:
            before, after = (np.concatenate(side) for side in zip(*self._pairs, strict=True))
            ones = np.ones(len(before))
            self.transitions += csr_array((ones, (before, after)), shape=self.transitions.shape)
            self._pairs.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity [n_items], and the transitions `before`, `after` with their `counts`."""
        cells = self.transitions.tocoo()
        arrays = (self.popularity, *(index.astype(np.int64) for index in cells.coords), cells.data)
        return dict(zip(STATE, map(torch.from_numpy, arrays), strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all counts."""
        self.popularity, before, after, counts = (state[name].numpy() for name in STATE)
        shape = (self.n_items, self.n_items)
        self.transitions = csr_array((counts, (before, after)), shape=shape)

    def scorer(self, candidates: Int[Tensor, " C"]) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices).

        A score of `transitions` is the count's rank among the distinct counts, from 1, plus
        popularity scaled below 1. Float32 is exact for up to 16 M distinct counts; popularity
        beside high ranks is rounded, and may then tie.
        """
        rows = candidates.cpu().numpy() - N_RESERVED
        popularity = self.popularity[rows]  # [C]
        if self.counts_transitions:
            popularity = popularity / (popularity.max(initial=0.0) + 1)
        fallback = torch.from_numpy(popularity.astype(np.float32))
        ranks = self.transitions[:, rows]
        ranks.data = np.unique(ranks.data, return_inverse=True)[1] + 1.0

        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
            if not self.counts_transitions:
                return fallback.expand(len(n_known), -1)
            items = columns[ITEM_ID].gather(1, (n_known - 1)[:, None])[:, 0]
            last = items.cpu().numpy() - N_RESERVED
            is_known = (last >= 0) & (last < self.n_items)
            found = ranks[last * is_known].tocoo()
            cells = tuple(torch.from_numpy(index.astype(np.int64)) for index in found.coords)
            values = found.data * is_known[found.coords[0]]
            scored = fallback.repeat(len(n_known), 1)  # [B, C]
            scored[cells] += torch.from_numpy(values.astype(np.float32))
            return scored

        return scores
