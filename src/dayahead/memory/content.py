"""Content: how near candidates are to the prefix by the vectors of the items table.

Items that nobody has clicked yet have no other evidence: the nearest of them are candidates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dayahead.memory.clicks import Clicks, Columns, Flags, Floats32, Ints
from dayahead.memory.evidence import CandidateBatch, Source
from dayahead.memory.pairs import REACH
from dayahead.memory.settings import MemorySettings
from dayahead.windows.items import ItemTable

KINDS = ("last", "mean", "new")
"""Cosine of the candidate and the prefix's last item; of the candidate and the mean of its last
items, weighted by 1 / their position from the end; the first where nobody has clicked the candidate
yet, else 0."""
N_NEW = 20
"""Items without a click that are candidates of a prefix, at most."""
STEPS = 2**11
"""Vectors are rounded to 1 / STEPS: products of two of at most unit length then have 22 bits, so
that float32 sums them exactly, in any order and on any number of processes."""


@dataclass(frozen=True)
class Content:
    """What the items table says about the items of a catalogue, [n] with reserved indices."""

    is_listed: Flags
    attributes: Ints
    """[n, A] values of the attributes; -1 where the table says nothing."""
    vectors: Mapping[str, Floats32]
    """[n, D] by name, of unit length or 0."""

    @classmethod
    def of(cls, table: ItemTable | None, settings: MemorySettings, n: int) -> "Content":
        """Return what a table says; None: nothing."""
        attributes = np.full((n, len(settings.attributes)), -1, np.int64)
        if table is None:
            return cls(np.zeros(n, bool), attributes, {})
        is_listed = table.is_listed(n)
        for place, name in enumerate(settings.attributes):
            if name in table.rows.column_names:
                attributes[is_listed, place] = table.values(name, n)[is_listed]
        vectors = {
            name: np.round(table.vectors(name, n) * STEPS) / np.float32(STEPS)
            for name in settings.vectors
        }
        return cls(is_listed, attributes, vectors)

    def new_items(self, is_wanted: Flags) -> "NewItemSearch | None":
        """Return a search among the wanted items that have vectors; None where there are none."""
        if not self.vectors:
            return None
        first, *others = self.vectors.values()
        vectors = np.concatenate([first, *others], axis=1) if others else first
        [new] = (is_wanted & self.is_listed & vectors.any(1)).nonzero()
        return NewItemSearch(vectors, new) if len(new) else None


class NewItemSearch:
    """Finds the items without a click that are nearest to an item by all vectors together.

    Args:
        vectors: [n, D] of the catalogue.
        new: the items without a click, ascending.
    """

    def __init__(self, vectors: Floats32, new: Ints) -> None:
        self.vectors = vectors
        self.new = new
        self.of_new = np.ascontiguousarray(vectors[new].T)
        self.nearest = np.zeros((len(vectors), min(N_NEW, len(new))), np.int32)
        """[n, E] what was found for each item, the nearest first, 0 where fewer."""
        self.is_found = np.zeros(len(vectors), bool)

    def add_to(self, candidates: Columns, prefixes: Clicks) -> Columns:
        """Replace the last candidates [B, C] by the items nearest to each prefix's last item."""
        n_new = min(self.nearest.shape[1], candidates.shape[1] // 4)
        n_kept = candidates.shape[1] - n_new
        found = self._nearest(prefixes.items[prefixes.last])[:, :n_new]
        # An own item may have no click before this session, and be a candidate already.
        is_there = (found[:, :, None] == candidates[:, None, :]).any(2)
        last = np.where(is_there | (found == 0), candidates[:, n_kept:], found)
        return np.concatenate([candidates[:, :n_kept], last], axis=1)

    def _nearest(self, items: Ints) -> Columns:
        # Several threads may find the same item: all write the same, before they say it is found.
        wanted = np.unique(items)
        wanted = wanted[~self.is_found[wanted]]
        cosines = self.vectors[wanted] @ self.of_new
        best = np.argsort(-cosines, axis=1, kind="stable")[:, : self.nearest.shape[1]]
        is_near = np.take_along_axis(cosines, best, axis=1) > 0
        self.nearest[wanted] = np.where(is_near, self.new[best], 0)
        self.is_found[wanted] = True
        return self.nearest[items]


class ContentSource(Source):
    """Cosines of the candidates and the items of the prefix."""

    def __init__(self, settings: MemorySettings) -> None:
        self.names = tuple(f"content.{name}.{kind}" for name in settings.vectors for kind in KINDS)
        self.n_vectors = len(settings.vectors)

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the cosines [B, C, 3 V]; 0 where an item has no vector."""
        vectors: Sequence[Floats32] = [*batch.content.vectors.values()] if batch.content else []
        if not vectors:
            return np.zeros((*batch.candidates.shape, len(self.names)), np.float32)
        latest = batch.prefixes.latest(REACH)  # [B, L], the last click first
        features: Floats32 = np.concatenate([_cosines(each, latest, batch) for each in vectors], 2)
        return features


def _cosines(vectors: Floats32, latest: Ints, batch: CandidateBatch) -> Floats32:
    """Return the features of one kind of vector [B, C, 3]."""
    of_prefix = vectors[latest]  # [B, L, D]
    place = 1 / np.arange(1, latest.shape[1] + 1, dtype=np.float32)
    mean = (of_prefix * place[:, None]).sum(1)
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), np.float32(1e-9))
    both = np.stack([of_prefix[:, 0], mean], axis=2)  # [B, D, 2]
    found = vectors[batch.candidates] @ both
    of_new = found[..., :1]
    if batch.is_seen is not None:
        of_new = of_new * ~batch.is_seen[batch.candidates][..., None]
    return np.concatenate([found, of_new], axis=2)
