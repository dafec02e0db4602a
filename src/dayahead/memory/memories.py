"""All memories of a model after a window, and the features that they give to a prefix."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
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
from dayahead.memory.context import context, context_names, past_context
from dayahead.memory.evidence import CandidateBatch, CountMemory, Memory, Source, sums_of
from dayahead.memory.items import ItemFeatures, ItemMemory
from dayahead.memory.neighbours import SessionMemory
from dayahead.memory.network import Network
from dayahead.memory.own import IS_OWN, OwnItems, PastItems
from dayahead.memory.pairs import PairMemory
from dayahead.memory.past import PastMemory
from dayahead.memory.settings import MemorySettings
from dayahead.memory.table import Columns, Floats32, Lookup, Sums

_CLOCK, _SIZES = "clock", "sizes"


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
    """The sources of a model's features; those that count are all at the same time `end`."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self.pairs, self.items = PairMemory(settings.config), ItemMemory(settings.config)
        self.sources = self._sources()
        memories = [each for each in self.sources if isinstance(each, Memory)]
        self.memories = {each.name: each for each in memories}
        assert len(self.memories) == len(memories), "two memories have the same name"
        self._counts = [each for each in self.sources if isinstance(each, CountMemory)]
        self.features = tuple(chain.from_iterable(each.names for each in self.sources))
        """Names of the features, in the order of the head's weights."""
        assert len({*self.features}) == len(self.features), "two features have the same name"
        self.is_share = [each.is_share for each in self.sources for _ in each.names]
        """Which features are log-probabilities."""
        masses = chain.from_iterable(each.names[: each.n_masses] for each in self._counts)
        self.context = context_names(
            [*masses], self.items.names, settings.columns, with_past=settings.with_past
        )
        """Names of the context."""
        self.sizes = dict.fromkeys((ITEM_ID, *settings.columns), 0)
        """Number of known values of each vocabulary; higher indices are read as unknown."""
        self.end = 0
        """Microseconds since 1970; 0 before the first window."""
        self._known: ItemFeatures | None = None

    def _sources(self) -> list[Source]:
        """Return the sources in the order of the head's weights; a new one is a line here."""
        settings, config = self.settings, self.settings.config
        sources: list[Source] = [
            self.pairs,
            SessionMemory(config, settings.unit),
            CategoryMemory(config, settings.columns),
            self.items,
            OwnItems(),
        ]
        if settings.with_past:
            sources += [PastItems(), PastMemory(config)]
        if settings.with_network:
            sources.append(Network())
        return sources

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return len(self.items.counts) - N_RESERVED

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the memories to the first `sizes[column]` values of each vocabulary."""
        self.sizes = {name: sizes[name] for name in self.sizes}
        for memory in self.memories.values():
            memory.grow(sizes[ITEM_ID])
        self._known = None

    @in_phase("memories")
    def add(self, sessions: Clicks, end: int) -> None:
        """Let time pass until `end` and add sessions, ordered by time, of the window before it.

        A click after `end` counts as one at it.
        """
        elapsed = (end - self.end) / self.settings.unit
        ages = np.maximum(end - sessions.times, 0) / self.settings.unit
        for memory in self.memories.values():
            memory.add(sessions, ages, elapsed)
        self.end = end
        self._known = None

    @property
    def known(self) -> ItemFeatures:
        """Features of items, equal for all prefixes; computed once."""
        if self._known is None:
            self._known = self.items.known(self.end, self.settings.unit)
        return self._known

    def reader(self, n_candidates: int, allowed: NDArray[np.bool_] | None = None) -> Reader:
        """Return a reader; candidates are items seen and the prefix's (if `allowed` [n])."""
        known = self.known
        popularity = known.popularity.copy()
        popularity[:N_RESERVED] = 0
        if allowed is not None:
            popularity[~allowed] = 0
        popular = most_popular(popularity * known.is_seen, n_candidates)

        @in_phase("memories")
        def read(prefixes: Clicks) -> Read:
            prefixes = prefixes.known(self.sizes.values())
            # Search and candidates read past and prefix as one sequence; features keep them apart.
            clicks = prefixes.after_past() if self.settings.with_past else prefixes
            found = {each.name: each.lookups(clicks, self.end) for each in self._counts}
            proposals = [p for each in self._counts for p in each.propose(found[each.name])]
            candidates = choose(clicks, proposals, popularity, popular, n_candidates)
            if self.settings.with_past:
                apart = (each for each in self._counts if not each.joins_past)
                found |= {each.name: each.lookups(prefixes, self.end) for each in apart}
            return self._read(prefixes, candidates, found)

        return read

    def _read(
        self, prefixes: Clicks, candidates: Columns, lookups: Mapping[str, Sequence[Lookup]]
    ) -> Read:
        known, n = self.known, len(self.known.popularity)
        sums = {name: sums_of(each, candidates, n) for name, each in lookups.items()}
        share = known.popularity[candidates][..., None]
        after_last = self.pairs.after_last(sums[self.pairs.name])
        transitions = self.pairs.transitions(after_last, share)
        batch = CandidateBatch(
            prefixes, candidates, known.logs[candidates], share, sums, transitions
        )
        features: Floats32 = np.concatenate(
            [each.features(batch) for each in self.sources], axis=2, dtype=np.float32
        )
        is_own = features[..., self.features.index(IS_OWN)] > 0
        return Read(candidates, features, is_own, self._context(prefixes, sums, after_last, is_own))

    def _context(
        self,
        prefixes: Clicks,
        sums: Mapping[str, Sums],
        after_last: Sums,
        is_own: NDArray[np.bool_],
    ) -> Floats32:
        masses = [sums[each.name].masses[:, : each.n_masses] for each in self._counts]
        unit = self.settings.unit
        parts = [
            context(
                prefixes,
                np.concatenate(masses, axis=1),
                after_last,
                is_own[:, : self.settings.config.n_candidates],
                self.known,
                (self.end, unit),
            )
        ]
        if self.settings.with_past:
            parts.append(past_context(prefixes, unit))
        return np.concatenate(parts, axis=1)

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of each memory under its name, the clock and the sizes."""
        sizes = torch.tensor(list(self.sizes.values()))
        state = {_CLOCK: torch.tensor([self.end]), _SIZES: sizes}
        for name, memory in self.memories.items():
            state |= prefixed(memory.state_dict(), f"{name}.")
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the sizes and all sums."""
        for name, memory in self.memories.items():
            memory.load_state_dict(with_prefix(state, f"{name}."))
        # After the items are loaded, which say how large the catalogue is: indices cover it.
        for memory in self.memories.values():
            memory.grow(self.n_items)
        self.sizes = dict(zip(self.sizes, state[_SIZES].tolist(), strict=True))
        self.end = int(state[_CLOCK])
        self._known = None
