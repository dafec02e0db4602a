"""Sources of evidence: each gives the candidates after a prefix named features.

A new source is a file with a subclass of `Source`, `Memory` or `CountMemory`, and its line in
`Memories`. Its names appear in reports and explanations.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.memory.candidates import Proposal
from dayahead.memory.clicks import Clicks, Columns, Flags, Floats, Floats32
from dayahead.memory.growth import Growth
from dayahead.memory.lookup import Lookup, Moment, Sums
from dayahead.memory.settings import HalfLife
from dayahead.memory.table import DecayedTable

if TYPE_CHECKING:
    from dayahead.memory.content import Content


@dataclass(frozen=True)
class CandidateBatch:
    """B prefixes with C candidates each, and what several sources need to know of them."""

    prefixes: Clicks
    candidates: Columns
    """[B, C] catalogue indices, 0 where a prefix has fewer."""
    of_items: Floats32
    """[B, C, I] features of the candidates that are the same for every prefix."""
    popularity: Floats32
    """[B, C, 1] share of each candidate in future clicks."""
    n_old: int = 0
    """Items known at the last fit, which are those with the lower indices."""
    sums: Mapping[str, Sums] = field(default_factory=dict)
    """Counts of each `CountMemory` at the candidates, by its name."""
    transitions: Floats32 | None = None
    """[B, C, 1] share of each candidate in the clicks after the prefix's last item."""
    content: "Content | None" = None
    """What the items table says; None: nothing."""
    is_seen: Flags | None = None
    """[n] whether each item of the catalogue was ever clicked."""


class Source(ABC):
    """Features of candidates."""

    names: tuple[str, ...]
    """Names of the features, in order."""
    is_share = False
    """Whether the features are log-probabilities, which a mixture can join."""

    @abstractmethod
    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the features [B, C, F]."""


class Memory(Source):
    """A source that counts clicks."""

    name: str
    """Its prefix in the state."""
    tables: Mapping[str, DecayedTable] = {}
    """Tables of counts, by name; a memory that counts otherwise has a state of its own."""

    def grow(self, n_items: int) -> None:
        """Extend the memory to a catalogue of `n_items`."""

    @abstractmethod
    def add(self, growth: Growth, ages: Floats, elapsed: float) -> None:
        """Let `elapsed` windows pass, then add new clicks; all clicks are `ages` windows old."""

    def compact(self) -> None:
        """Bring what was added in small parts into the form of a state."""
        for table in self.tables.values():
            table.compact()

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that is counted, compacted: the cells of all tables."""
        state: dict[str, Tensor] = {}
        for name, table in self.tables.items():
            state |= prefixed(table.state_dict(), f"{name}.")
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all that is counted."""
        for name, table in self.tables.items():
            table.load_state_dict(with_prefix(state, f"{name}."))


class CountMemory(Memory):
    """Decayed counts of items in the rows of tables, of which each prefix reads some.

    A count c of a candidate that is expected with probability p becomes the feature
    log((c + n * p) / (total + n)), with a prior count n: its share of the row's clicks, with
    Dirichlet smoothing (Zhai and Lafferty 2004).
    """

    prior: Floats32 | float
    """[K] or one number: the prior counts."""
    is_relative = False
    """Whether the log-share expected without the memory is subtracted."""
    joins_past = False
    """Whether past and prefix are read as one sequence of clicks."""
    n_masses = 0
    """How many of the channels' totals, the first ones, are part of the context."""

    @abstractmethod
    def lookups(self, prefixes: Clicks, now: Moment) -> list[Lookup]:
        """Return the rows that prefixes read at a time; their channels are joined."""

    def propose(self, _lookups: Sequence[Lookup]) -> list[Proposal]:
        """Return how the memory expects candidates; by default it proposes none."""
        return []

    def expected(self, batch: CandidateBatch) -> Floats32:
        """Return the probability of each candidate without the memory, [B, C, K] or [B, C, 1]."""
        return batch.popularity

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the smoothed log-shares [B, C, K]."""
        expected = self.expected(batch)
        logs = log_share(batch.sums[self.name], expected, self.prior)
        if self.is_relative:
            logs -= np.log(expected)
        return logs


def log_share(sums: Sums, expected: Floats32, prior: Floats32 | float) -> Floats32:
    """Return the logarithms of smoothed shares [B, C, K] (see `CountMemory`)."""
    counts = np.asarray(prior, np.float32)
    logs: Floats32 = sums.counts + counts * expected
    np.log(logs, out=logs)  # in place, as the arrays are large
    logs -= np.log(sums.masses + counts)[:, None]
    return logs


def sums_of(lookups: Sequence[Lookup], candidates: Columns, n: int) -> Sums:
    """Return the sums of all lookups at the candidates, their channels side by side."""
    found = [lookup.sums(candidates, n) for lookup in lookups]
    if len(found) == 1:  # no copy: the arrays are large
        return found[0]
    # With an empty part, concatenation works for no lookups too.
    counts = [np.zeros((*candidates.shape, 0), np.float32), *(each.counts for each in found)]
    masses = [np.zeros((len(candidates), 0), np.float32), *(each.masses for each in found)]
    return Sums(np.concatenate(counts, axis=-1), np.concatenate(masses, axis=-1))


class Channel(NamedTuple):
    """A kind of count with a half-life."""

    kind: str
    """What is counted."""
    half_life: HalfLife

    @property
    def name(self) -> str:
        """`next.4`, as a part of the name of a feature."""
        return f"{self.kind}.{self.half_life.name}"


def channels(**half_lives: Sequence[HalfLife]) -> tuple[Channel, ...]:
    """List the channels of some kinds of count."""
    return tuple(Channel(kind, each) for kind, values in half_lives.items() for each in values)


def middle(among: Sequence[Channel], kind: str) -> int:
    """Return the index of a kind's channel with the middle half-life, the longer one of two."""
    of_kind = of(among, kind)
    return of_kind[len(of_kind) // 2]


def of(among: Sequence[Channel], kind: str) -> list[int]:
    """Return the indices of a kind's channels, shorter half-lives first."""
    return [index for index, each in enumerate(among) if each.kind == kind]
