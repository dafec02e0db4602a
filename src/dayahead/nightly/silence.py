"""Silence: the longest stretch of a window without a click, by the clicks usual in it.

A file that was cut in the middle of a day, or that lacks some hours, leaves such a stretch. A quiet
night is as long, but has few clicks in other windows either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

N_PARTS: Final = 1440
"""Equal parts of a window in which its clicks are counted: minutes of a day."""
CHANCE: Final = 0.001
"""Share of faultless windows whose longest silence is above `by_chance`."""
Parts = NDArray[np.int64]
"""[N_PARTS] clicks of a window in each of its parts."""


@dataclass(frozen=True)
class Silence:
    """The stretch without a click in which other windows have the most of theirs."""

    share: float
    """Share of a window's clicks that are in this stretch: the median of the others."""
    start: float = 0.0
    """Start of the stretch, as a share of the window's length."""
    end: float = 0.0


def longest_silence(parts: Parts, others: Sequence[Parts]) -> Silence:
    """Find the longest silence of a window by the clicks of others that have some."""
    is_silent = np.pad(parts == 0, 1).astype(np.int8)
    starts, ends = np.flatnonzero(np.diff(is_silent)).reshape(-1, 2).T
    known = np.array([each for each in others if each.any()])
    if not len(starts) or not len(known):
        return Silence(0.0)
    clicks = np.pad(known.cumsum(axis=1) / known.sum(axis=1, keepdims=True), [(0, 0), (1, 0)])
    shares = np.median(clicks[:, ends] - clicks[:, starts], axis=0)
    longest = int(shares.argmax())
    return Silence(float(shares[longest]), starts[longest] / len(parts), ends[longest] / len(parts))


def by_chance(n_sessions: int) -> float:
    """Return the share that the longest silence of so many sessions exceeds in 1 of 1000 windows.

    The silence between n independent sessions is longer than a share s with probability (1 - s)^n,
    and there are n + 1 of them.
    """
    return float(1 - (CHANCE / (n_sessions + 1)) ** (1 / n_sessions)) if n_sessions else 1.0
