"""Own items: where a candidate stands in the prefix, or in the user's past."""

import numpy as np

from dayahead.memory.clicks import Clicks, Columns, Floats32
from dayahead.memory.evidence import CandidateBatch, Source
from dayahead.memory.pairs import REACH

_POSITIONS = ("is_known", "position", "is_last")
"""Whether a candidate is in the sequence; 1 / its position from the end; whether it is the last."""


class OwnItems(Source):
    """Positions of the candidates in the prefix."""

    names = tuple(f"own.{name}" for name in _POSITIONS)

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the positions [B, C, 3]."""
        return _positions(batch.prefixes, batch.candidates)


class PastItems(Source):
    """Positions of the candidates in the user's past."""

    names = tuple(f"past.{name}" for name in _POSITIONS)

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the positions [B, C, 3]."""
        return _positions(batch.prefixes.earlier, batch.candidates)


IS_OWN = OwnItems.names[0]


def _positions(rows: Clicks, candidates: Columns) -> Floats32:
    latest = rows.latest(REACH)  # [B, L], the last click first
    is_same = (candidates[:, :, None] == latest[:, None]) & (candidates[:, :, None] > 0)
    place = 1 / np.arange(1, latest.shape[1] + 1, dtype=np.float32)
    own = [is_same.any(2), (is_same * place).max(2), is_same[:, :, 0]]
    features: Floats32 = np.stack(own, axis=2).astype(np.float32)
    return features
