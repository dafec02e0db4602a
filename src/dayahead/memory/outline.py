"""Outlines of sessions: what orders them and draws examples from them, without their clicks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dayahead.core.ragged import Ints, offsets_of, ranges


class Positions(NamedTuple):
    """End positions of P prefixes within their rows."""

    rows: Ints
    """[P] row of each prefix."""
    n_after: Ints
    """[P] clicks of the row that come after the prefix."""

    def take(self, chosen: Ints) -> "Positions":
        """Return some of the positions, in the order given."""
        return Positions(self.rows[chosen], self.n_after[chosen])


@dataclass(frozen=True)
class Outline:
    """R sessions without their clicks."""

    lengths: Ints
    """[R] clicks of each."""
    ends: Ints
    """[R] time of its last click, microseconds since 1970; 0 of one without clicks."""
    hashes: NDArray[np.uint64]
    """[R] of its clicks and past."""
    marks: NDArray[np.uint64] | None
    """[R] hash of what its clicks count and predict; None where all are alike."""
    is_learnable: NDArray[np.bool_] | None
    """[N] whether the head may learn to predict a click; None: any."""

    @classmethod
    def cat(cls, parts: Sequence["Outline"]) -> "Outline":
        """Join the sessions of all parts, of which there may be none."""
        no = np.zeros(0, np.int64)
        marks = [each.marks for each in parts if each.marks is not None]
        flags = [each.is_learnable for each in parts if each.is_learnable is not None]
        return cls(
            np.concatenate([no, *(each.lengths for each in parts)]),
            np.concatenate([no, *(each.ends for each in parts)]),
            np.concatenate([no.view(np.uint64), *(each.hashes for each in parts)]),
            np.concatenate(marks) if marks else None,
            np.concatenate(flags) if flags else None,
        )

    def order(self) -> Ints:
        """Return the non-empty rows by the time of their last click, ties by a hash of the row.

        The model fitted on a window therefore does not depend on the order of its sessions.
        """
        rows = np.flatnonzero(self.lengths)
        # Marks are the last key, so that those which say nothing change no order.
        marks = [] if self.marks is None else [self.marks[rows]]
        return np.asarray(rows[np.lexsort([*marks, self.hashes[rows], self.ends[rows]])])

    def halves(self) -> tuple[Ints, Ints]:
        """Return the earlier and the later half of the rows, each in `order`."""
        order = self.order()
        middle = len(order) // 2
        return order[:middle], order[middle:]

    def drawn(self, rows: Ints, n_most: int, generator: torch.Generator) -> Positions:
        """Draw clicks to learn from, all but the first of a session; at random if there are more.

        Returns:
            Their positions in `rows`, in this order: the replay keeps the last examples.
        """
        ends = np.cumsum(self.lengths[rows] - 1)
        eligible = None
        if self.is_learnable is not None:
            clicks = ranges(offsets_of(self.lengths)[rows] + 1, self.lengths[rows] - 1)
            [eligible] = self.is_learnable[clicks].nonzero()
        n = len(eligible) if eligible is not None else int(ends[-1]) if len(ends) else 0
        chosen = np.sort(torch.randperm(n, generator=generator)[:n_most].numpy())
        if eligible is not None:
            chosen = eligible[chosen]
        places = np.searchsorted(ends, chosen, side="right")
        return Positions(places, ends[places] - chosen)
