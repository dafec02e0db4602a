"""Two architectures that count instead of learning, so that a transformer earns its keep.

Both score by counts over train sessions; neither reads more than the last known item.
"""

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
from dayahead.model.scoring import Scorer


class CountingModel:
    """`popularity` and `transitions`.

    popularity    an item's events in the windows of the last fit
    transitions   how often an item followed the last known one, counts of earlier fits times
                  `decay` per fit; below every item that ever followed, by popularity
    """

    shard = WHOLE
    """Every process counts all."""

    def __init__(self, config: ModelConfig) -> None:
        self.counts_transitions = config.architecture == "transitions"
        self.decay = config.decay
        self.popularity = np.zeros(0, np.float64)
        self.following = csr_array((0, 0), dtype=np.float64)
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    @property
    def n_items(self) -> int:
        """Items held."""
        return len(self.popularity)

    def grow(self, n_items: int) -> None:
        """Hold the first `n_items` of the catalogue."""
        self.popularity = np.pad(self.popularity, (0, n_items - self.n_items))
        self.following.resize((n_items, n_items))

    def start_window(self) -> None:
        """Forget the popularity of the window before, and let its transitions fade."""
        self.popularity[:] = 0
        self.following = (self.following * self.decay).tocsr()
        self.following.eliminate_zeros()

    def count(self, items: Int[Tensor, "B L"], lengths: Int[Tensor, " B"]) -> None:
        """Take in train sessions, right-padded catalogue indices."""
        steps = torch.arange(items.shape[1])
        rows = items.numpy() - N_RESERVED
        held = rows[(steps < lengths[:, None]).numpy()]
        self.popularity += np.bincount(held, minlength=self.n_items)
        if self.counts_transitions:
            is_followed = (steps[:-1] < lengths[:, None] - 1).numpy()
            pairs = (rows[:, :-1][is_followed], rows[:, 1:][is_followed])
            self._pairs.append(pairs)

    def finish_window(self) -> None:
        """Add the window's transitions to those before."""
        if self._pairs:
            before, after = (np.concatenate(side) for side in zip(*self._pairs, strict=True))
            ones = np.ones(len(before))
            self.following += csr_array((ones, (before, after)), shape=self.following.shape)
            self._pairs.clear()

    def scorer(self, candidates: Int[Tensor, " C"]) -> Scorer:
        """Return what scores the candidates (catalogue indices) after the last known item.

        Scores of `transitions` are a count's place among the distinct counts, from 1, plus
        popularity squeezed below 1 as the filler. A float32 tells the order of counts apart up to
        16 M distinct ones; popularity beside high places is rounded, and then ties.
        """
        rows = candidates.cpu().numpy() - N_RESERVED
        popularity = self.popularity[rows]  # [C]
        if self.counts_transitions:
            popularity = popularity / (popularity.max(initial=0.0) + 1)
        filler = torch.from_numpy(popularity.astype(np.float32))
        followers = self.following[:, rows]
        followers.data = np.unique(followers.data, return_inverse=True)[1] + 1.0

        def scores(
            columns: Mapping[str, Tensor], n_known: Int[Tensor, " B"]
        ) -> Float[Tensor, "B C"]:
            if not self.counts_transitions:
                return filler.expand(len(n_known), -1)
            items = columns[ITEM_ID].gather(1, (n_known - 1)[:, None])[:, 0]
            last = items.cpu().numpy() - N_RESERVED
            is_held = (last >= 0) & (last < self.n_items)
            found = followers[last * is_held].tocoo()
            places = tuple(torch.from_numpy(at.astype(np.int64)) for at in found.coords)
            counts = found.data * is_held[found.coords[0]]
            scored = filler.repeat(len(n_known), 1)  # [B, C]
            scored[places] += torch.from_numpy(counts.astype(np.float32))
            return scored

        return scores
