"""All memories of a model after a window, and the features that they give to a prefix."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.phases import in_phase
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.memory.attributes import AttributeMemory
from dayahead.memory.candidates import Chooser
from dayahead.memory.categories import CategoryMemory
from dayahead.memory.clicks import Clicks, Columns, Flags, Floats32, Ints
from dayahead.memory.content import Content, ContentSource, NewItemSearch
from dayahead.memory.context import context, context_names, past_context
from dayahead.memory.evidence import CandidateBatch, CountMemory, Memory, Source, sums_of
from dayahead.memory.growth import Growth
from dayahead.memory.items import ItemFeatures, ItemMemory
from dayahead.memory.lookup import Lookup, Moment, Sums
from dayahead.memory.neighbours import SessionMemory
from dayahead.memory.network import Network, NewItems
from dayahead.memory.own import IS_OWN, OwnItems, PastItems
from dayahead.memory.pairs import PairMemory
from dayahead.memory.past import PastMemory
from dayahead.memory.settings import MemorySettings
from dayahead.windows.items import ItemTable

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
"""May be called by several threads at once."""
MEMORIES = "memories"
"""Phase in which memories are read."""


class Memories:
    """The sources of a model's features; those that count have all counted up to the same time."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self.pairs, self.items = PairMemory(settings), ItemMemory(settings)
        self.sources = self._sources()
        memories = [each for each in self.sources if isinstance(each, Memory)]
        _check_distinct([each.name for each in memories], "memories")
        self.memories = {each.name: each for each in memories}
        self._counts = [each for each in self.sources if isinstance(each, CountMemory)]
        self.features = tuple(chain.from_iterable(each.names for each in self.sources))
        """Names of the features, in the order of the head's weights."""
        _check_distinct(self.features, "features")
        self.is_share = [each.is_share for each in self.sources for _ in each.names]
        """Which features are log-probabilities."""
        masses = chain.from_iterable(each.names[: each.n_masses] for each in self._counts)
        self.context = context_names(
            [*masses], self.items.names, settings.columns, with_past=settings.with_past
        )
        """Names of the context."""
        self.sizes = dict.fromkeys((ITEM_ID, *settings.columns), 0)
        """Number of values of each vocabulary."""
        self.is_known: dict[str, Flags] = {name: np.ones(N_RESERVED, bool) for name in self.sizes}
        """Which values of each vocabulary are known, by index; others are read as unknown."""
        self.n_old = 0
        """Items known at the last fit, which are those with the lower indices."""
        self.counted_at = 0
        """Time of the last count, microseconds since 1970; 0 before the first window."""
        self.now = 0
        """Time at which the memories are read."""
        self._known: ItemFeatures | None = None
        self.items_table: ItemTable | None = None
        """What else is known of items; not a part of the state."""
        self.with_new = True  # whether items of the table without a click may be candidates
        self._content: Content | None = None

    def _sources(self) -> list[Source]:
        """Return the sources in the order of the head's weights; a new one is a line here."""
        settings = self.settings
        sources: list[Source] = [
            self.pairs,
            SessionMemory(settings),
            CategoryMemory(settings),
            self.items,
            OwnItems(),
        ]
        if settings.attributes:
            sources.append(AttributeMemory(settings))
        if settings.vectors:
            sources.append(ContentSource(settings))
        if settings.with_past:
            sources += [PastItems(), PastMemory(settings)]
        if settings.with_network:
            sources.append(Network())
        if settings.with_network and settings.tick:
            sources.append(NewItems())
        return sources

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return len(self.items.counts) - N_RESERVED

    @property
    def counted_items(self) -> Ints:
        """Items counted so far, ascending."""
        return self.items.is_seen.nonzero()[0]

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the memories to the first `sizes[column]` values of each vocabulary."""
        self.sizes = {name: sizes[name] for name in self.sizes}
        for name, flags in self.is_known.items():
            n_new = self.sizes[name] + N_RESERVED - len(flags)
            # Before the first window no value is new.
            self.is_known[name] = np.pad(flags, (0, n_new), constant_values=self.counted_at == 0)
        for memory in self.memories.values():
            memory.grow(sizes[ITEM_ID])
        self._known = self._content = None

    def know_items(self, table: ItemTable | None, *, with_new: bool = True) -> None:
        """Read the attributes and vectors of items in this table from now on.

        `with_new` says whether items without a click may be candidates.
        """
        self.items_table, self.with_new, self._content = table, with_new, None

    @property
    def content(self) -> Content | None:
        """What the table of items says, computed once; None where there is none."""
        if self._content is None and self.items_table is not None:
            n = self.n_items + N_RESERVED
            self._content = Content.of(self.items_table, self.settings, n)
        return self._content

    def know_all(self) -> None:
        """Read every value of the vocabularies as known from now on; none is new any more."""
        self.n_old = self.n_items
        self.is_known = {name: np.ones_like(flags) for name, flags in self.is_known.items()}

    def of(self, sessions: Iterable[Clicks], end: int) -> "Memories":
        """Return memories of the same catalogue that have counted these sessions alone."""
        memories = type(self)(self.settings)
        memories.grow(self.sizes)
        memories.know_items(self.items_table, with_new=self.with_new)
        memories.add(sessions, end)
        return memories

    def add(self, sessions: Iterable[Clicks], end: int) -> None:
        """Let time pass until `end` and add sessions, ordered by time, of the window before it.

        A click after `end` counts as one at it. All values are known then.
        """
        for part in sessions:
            self.count(Growth.whole(part), end)
        self.compact()
        self.know_all()

    @in_phase("count")
    def count(self, growth: Growth, time: int) -> None:
        """Let time pass until `time` and count new clicks, whose values are known then."""
        for part in growth.parts():
            self._count(part, time)
        self.move_to(time)

    def _count(self, growth: Growth, time: int) -> None:
        elapsed = (time - self.counted_at) / self.settings.unit
        clicks = growth.sessions
        ages = np.maximum(time - clicks.times, 0) / self.settings.unit
        for memory in self.memories.values():
            memory.add(growth, ages, elapsed)
        columns = (clicks.items, *clicks.categories.T)
        for (name, flags), values in zip(self.is_known.items(), columns, strict=True):
            is_seen = np.bincount(values, minlength=len(flags))[: len(flags)] > 0
            self.is_known[name] = flags | is_seen
        self.counted_at = time

    @in_phase("count")
    def compact(self) -> None:
        """Bring all memories into the form of a state, at the end of a window."""
        for memory in self.memories.values():
            memory.compact()

    def move_to(self, time: int) -> None:
        """Let time pass until `time`, in which nothing is to be counted."""
        self.now = time
        self._known = None

    @property
    def moment(self) -> Moment:
        """The time at which the memories are read, and how long nothing was counted before it."""
        return Moment(self.now, (self.now - self.counted_at) / self.settings.unit)

    @property
    def known(self) -> ItemFeatures:
        """Features of items, equal for all prefixes; computed once."""
        if self._known is None:
            # How many items a window brings must not be known before its end.
            n_old = self.n_old if self.settings.tick else self.n_items
            self._known = self.items.known(self.moment, self.settings.unit, n_old)
        return self._known

    def reader(self, n_candidates: int, allowed: NDArray[np.bool_] | None = None) -> Reader:
        """Return a reader; candidates are items seen and the prefix's (if `allowed` [n])."""
        known, now = self.known, self.moment
        popularity = known.popularity.copy()
        popularity[:N_RESERVED] = 0
        if allowed is not None:
            popularity[~allowed] = 0
        choose = Chooser(popularity, known.is_seen, n_candidates)
        new_items = self._new_items((popularity > 0) & ~known.is_seen)

        def read(prefixes: Clicks) -> Read:
            prefixes = prefixes.known([*self.is_known.values()])
            # Search and candidates read past and prefix as one sequence; features keep them apart.
            clicks = prefixes.after_past() if self.settings.with_past else prefixes
            found = {each.name: each.lookups(clicks, now) for each in self._counts}
            proposals = [p for each in self._counts for p in each.propose(found[each.name])]
            candidates = choose(clicks, proposals)
            if new_items is not None:
                candidates = new_items.add_to(candidates, clicks)
            if self.settings.with_past:
                apart = (each for each in self._counts if not each.joins_past)
                found |= {each.name: each.lookups(prefixes, now) for each in apart}
            return self._read(prefixes, candidates, found)

        return read

    def reads_all(self, allowed: Flags) -> bool:
        """Whether a reader of these items reads what one of all items does.

        It does for prefixes whose own items are all among them.
        """
        return self.items_table is None and bool(allowed[self.items.is_seen].all())

    def _new_items(self, is_new: Flags) -> NewItemSearch | None:
        """Return a search among these items, as far as they are available now."""
        if self.items_table is None or self.content is None or not self.with_new:
            return None
        is_available = self.items_table.is_available(np.arange(len(is_new)), self.now)
        return self.content.new_items(is_new & is_available)

    def _read(
        self, prefixes: Clicks, candidates: Columns, lookups: Mapping[str, Sequence[Lookup]]
    ) -> Read:
        known, n = self.known, len(self.known.popularity)
        sums = {name: sums_of(each, candidates, n) for name, each in lookups.items()}
        share = known.popularity[candidates][..., None]
        after_last = self.pairs.after_last(sums[self.pairs.name])
        transitions = self.pairs.transitions(after_last, share)
        batch = CandidateBatch(
            *(prefixes, candidates, known.logs[candidates], share, self.n_old, sums, transitions),
            content=self.content,
            is_seen=known.is_seen,
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
                (self.now, unit),
            )
        ]
        if self.settings.with_past:
            parts.append(past_context(prefixes, unit))
        return np.concatenate(parts, axis=1)

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of each memory under its name, the clock and the sizes."""
        sizes = torch.tensor(list(self.sizes.values()))
        state = {_CLOCK: torch.tensor([self.counted_at]), _SIZES: sizes}
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
        self.is_known = {name: np.ones(n + N_RESERVED, bool) for name, n in self.sizes.items()}
        self.know_all()
        self._content = None
        self.counted_at = int(state[_CLOCK])
        self.move_to(self.counted_at)


def _check_distinct(names: Sequence[str], kind: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"{kind} have the same name: {', '.join(twice)}"
