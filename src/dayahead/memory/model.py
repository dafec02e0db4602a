"""The model `memory`: memories of clicks, joined by a head that is trained on what comes next."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.candidates import choose
from dayahead.memory.categories import CategoryMemory
from dayahead.memory.clicks import Clicks
from dayahead.memory.context import context, context_names
from dayahead.memory.features import (
    CategoryEvidence,
    ItemFeatures,
    candidate_features,
    feature_names,
)
from dayahead.memory.head import Examples, Head, HeadSettings, HeadTrainer
from dayahead.memory.items import ItemMemory
from dayahead.memory.neighbours import NeighbourSettings, SessionMemory
from dayahead.memory.pairs import PairMemory

CHUNK = 256
Network = Callable[[Clicks], Float[Tensor, "B n"]]


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of a memory model."""

    unit: int
    """Microseconds of a window."""
    columns: tuple[str, ...] = ()
    n_candidates: int = 200
    with_network: bool = False
    seed: int = 0
    neighbours: NeighbourSettings = field(default_factory=NeighbourSettings)
    head: HeadSettings = field(default_factory=HeadSettings)


class MemoryModel:
    """Scores items."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        self._forget()
        self.names = feature_names(settings.columns, settings.with_network)
        n_context = len(context_names(settings.columns))
        torch.manual_seed(settings.seed)
        self.head = Head(len(self.names), n_context, settings.head.width)
        self.trainer = HeadTrainer(self.head, settings.head)
        self.n_fits = 0
        self.times = {}

    def _forget(self) -> None:
        n_items = self.n_items if hasattr(self, "items") else 0
        self.pairs = PairMemory()
        self.items = ItemMemory()
        self.categories = CategoryMemory(len(self.settings.columns))
        self.sessions = SessionMemory(self.settings.neighbours)
        self.end = 0
        self.grow(n_items)

    @property
    def n_items(self) -> int:
        return len(self.items.counts) - N_RESERVED

    def grow(self, n_items: int) -> None:
        self.items.grow(n_items)
        self.sessions.grow(n_items)

    def _remember(self, sessions: Clicks, end: int) -> None:
        unit = self.settings.unit
        elapsed = (end - self.end) / unit
        ages = np.maximum(end - sessions.times, 0) / unit
        self.pairs.add(sessions, ages, elapsed)
        self.items.add(sessions, ages, elapsed)
        self.categories.add(sessions, ages, elapsed)
        self.sessions.add(sessions)
        self.end = end

    def fit(self, sessions: Clicks, end: int) -> float | None:
        import time
        sessions = sessions.without_empty_rows().in_order()
        t0 = time.perf_counter()
        if self.n_fits == 0:
            half = len(sessions) // 2
            first = sessions.take(np.arange(half))
            second = sessions.take(np.arange(half, len(sessions)))
            self._remember(first, int(first.times[first.last].max()))
            examples = self._examples(second)
            self.head.standardise(examples)
            self._forget()
            epochs = self.settings.head.first_epochs
        else:
            examples = self._examples(sessions)
            epochs = self.settings.head.epochs
        t1 = time.perf_counter()
        f, x = self.head.standardised(examples.features, examples.context)
        examples = replace(examples, features=f, context=x)
        generator = torch.Generator().manual_seed(self.settings.seed * 1000 + self.n_fits)
        loss = self.trainer.fit(examples, epochs, generator)
        t2 = time.perf_counter()
        self._remember(sessions, end)
        t3 = time.perf_counter()
        for name, v in (("features", t1 - t0), ("head", t2 - t1), ("memory", t3 - t2)):
            self.times[name] = self.times.get(name, 0) + v
        self.n_fits += 1
        return loss

    def _examples(self, sessions: Clicks) -> Examples:
        prefixes, targets = sessions.prefixes()
        parts = []
        reader = Reader(self)
        for start in range(0, len(prefixes), CHUNK):
            rows = np.arange(start, min(len(prefixes), start + CHUNK))
            cands, features, x = reader(prefixes.take(rows))
            is_target = cands == targets[rows, None]
            columns = np.where(is_target.any(1), is_target.argmax(1), -1)
            parts.append(
                Examples(*map(torch.from_numpy, (features, cands > 0, x, columns)))
            )
        return Examples.cat(parts)

    @torch.no_grad()
    def scores(self, prefixes: Clicks, candidates: NDArray) -> Float32[Tensor, "B C"]:
        reader = Reader(self)
        cands, features, x = reader(prefixes)
        scores = self.head(*self.head.standardised(torch.from_numpy(features), torch.from_numpy(x)))
        is_c = torch.from_numpy(cands > 0)
        lowest = scores.masked_fill(~is_c, torch.inf).amin(1, keepdim=True)
        popularity = self.items.popularity()
        fallback = torch.from_numpy((popularity / popularity.max() - 2).astype(np.float32))
        full = fallback.repeat(len(prefixes), 1)
        full.scatter_(1, torch.from_numpy(cands).long(), scores - lowest)
        return full[:, torch.from_numpy(candidates).long()]


class Reader:
    """Reads the memories as they stand."""

    def __init__(self, model: MemoryModel) -> None:
        self.m = model
        m = model
        self.now = m.end, m.settings.unit
        self.known = ItemFeatures.of(m.items, *self.now)
        self.weights = m.sessions.weights(*self.now)
        self.popularity = m.items.popularity() * m.items.is_seen

    def __call__(self, prefixes: Clicks):
        m = self.m
        near = m.sessions.search(prefixes, self.weights)
        cands = choose(prefixes, m.pairs.table.cells, near, self.popularity, m.settings.n_candidates)
        n = len(self.popularity)
        evidence = (
            m.pairs.evidence(prefixes, cands, n),
            near,
            CategoryEvidence(*m.categories.evidence(prefixes, cands, n)),
        )
        f = candidate_features(prefixes, cands, evidence, self.known, len(m.names))
        x = context(prefixes, evidence, m.items, self.known, self.now)
        return cands, f, x
