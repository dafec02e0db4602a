"""All memories of a model after a window, and the features that they give to a prefix."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.phases import in_phase
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.memory.candidates import choose, most_popular
from dayahead.memory.categories import CategoryMemory
from dayahead.memory.clicks import Clicks
from dayahead.memory.context import context
from dayahead.memory.features import (
    IS_OWN,
    Evidence,
    ItemFeatures,
    candidate_features,
    feature_names,
)
from dayahead.memory.items import ItemMemory
from dayahead.memory.neighbours import SessionMemory, Weights
from dayahead.memory.pairs import PairMemory
from dayahead.memory.past import PastMemory
from dayahead.memory.settings import MemorySettings

_CLOCK, _SIZES = "clock", "sizes"
_Part = PairMemory | ItemMemory | CategoryMemory | SessionMemory | PastMemory


class Read(NamedTuple):
    """Candidates of B prefixes, with their features and context from the memories."""

    candidates: NDArray[np.int32]
    """[B, C] catalogue indices, 0 where a prefix has fewer."""
    features: NDArray[np.float32]
    """[B, C, F]"""
    is_own: NDArray[np.bool_]
    """[B, C] whether the candidate is in the prefix."""
    context: NDArray[np.float32]
    """[B, X]"""


Reader = Callable[[Clicks], Read]


class Memories:
    """Pairs, items, categories and sessions, all at the same time `end`."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self.pairs = PairMemory()
        self.items = ItemMemory()
        self.categories = CategoryMemory(len(settings.columns))
        self.sessions = SessionMemory(settings.config)
        self.pasts = PastMemory() if settings.with_past else None
        self.sizes = dict.fromkeys((ITEM_ID, *settings.columns), 0)
        """Number of known values of each vocabulary; higher indices are read as unknown."""
        self.end = 0
        """Microseconds since 1970; 0 before the first window."""
        self._known: tuple[ItemFeatures, Weights] | None = None

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return len(self.items.counts) - N_RESERVED

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the memories to the first `sizes[column]` values of each vocabulary."""
        self.sizes = {name: sizes[name] for name in self.sizes}
        self.items.grow(sizes[ITEM_ID])
        self.sessions.grow(sizes[ITEM_ID])
        self._known = None

    @in_phase("memories")
    def add(self, sessions: Clicks, end: int) -> None:
        """Let time pass until `end` and add sessions, ordered by time, of the window before it.

        A click after `end` counts as one at it.
        """
        elapsed = (end - self.end) / self.settings.unit
        ages = np.maximum(end - sessions.times, 0) / self.settings.unit
        for memory in (self.pairs, self.items, self.categories):
            memory.add(sessions, ages, elapsed)
        self.sessions.add(sessions)
        if self.pasts is not None:
            self.pasts.add(sessions, ages, elapsed)
        self.end = end
        self._known = None

    @property
    def known(self) -> tuple[ItemFeatures, Weights]:
        """Features of items and weights of sessions, equal for all prefixes; computed once."""
        if self._known is None:
            now = self.end, self.settings.unit
            self._known = ItemFeatures.of(self.items, *now), self.sessions.weights(*now)
        return self._known

    def reader(self, n_candidates: int, allowed: NDArray[np.bool_] | None = None) -> Reader:
        """Return a reader; candidates are items seen and the prefix's (if `allowed` [n])."""
        now = self.end, self.settings.unit
        known, weights = self.known
        popularity = known.popularity.copy()
        popularity[:N_RESERVED] = 0
        if allowed is not None:
            popularity[~allowed] = 0
        model = self.settings
        names = feature_names(model.columns, model.with_network, model.with_past)
        own = names.index(IS_OWN)
        n = len(popularity)
        popular = most_popular(popularity * known.is_seen, n_candidates)

        @in_phase("memories")
        def read(prefixes: Clicks) -> Read:
            prefixes = prefixes.known(self.sizes.values())
            # Search and candidates read past and prefix as one sequence; features keep them apart.
            clicks = prefixes if self.pasts is None else prefixes.after_past()
            near = self.sessions.search(clicks, weights)
            candidates = choose(
                clicks, self.pairs.table.cells, near, popularity, popular, n_candidates
            )
            evidence = Evidence(
                self.pairs.evidence(prefixes, candidates, n),
                near.evidence(candidates, n),
                self.categories.evidence(prefixes, candidates, n),
                None if self.pasts is None else self.pasts.evidence(prefixes, candidates, n),
            )
            features = candidate_features(prefixes, candidates, evidence, known, len(names))
            is_own = features[..., own] > 0
            best = is_own[:, : model.config.n_candidates]
            of_prefixes = context(prefixes, evidence, best, known, now)
            return Read(candidates, features, is_own, of_prefixes)

        return read

    def _parts(self) -> dict[str, _Part]:
        parts: dict[str, _Part] = {
            "items": self.items,
            "pairs": self.pairs,
            "categories": self.categories,
            "sessions": self.sessions,
        }
        return parts if self.pasts is None else parts | {"pasts": self.pasts}

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of each memory under its name, the clock and the sizes."""
        sizes = torch.tensor(list(self.sizes.values()))
        state = {_CLOCK: torch.tensor([self.end]), _SIZES: sizes}
        for name, memory in self._parts().items():
            state |= prefixed(memory.state_dict(), f"{name}.")
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the sizes and all sums."""
        for name, memory in self._parts().items():
            memory.load_state_dict(with_prefix(state, f"{name}."))
        # After the items are loaded, which say how large the catalogue is: the index covers it.
        self.sessions.grow(self.n_items)
        self.sizes = dict(zip(self.sizes, state[_SIZES].tolist(), strict=True))
        self.end = int(state[_CLOCK])
        self._known = None
