"""What sessions may get at a time: the candidates that all share, and what none may get."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dayahead.windows.items import ItemTable


@dataclass(frozen=True)
class Offered:
    """Candidates at a time. A session's own items are candidates besides, unless withdrawn.

    Own items that are not released yet are candidates: the session has just clicked them.
    """

    candidates: NDArray[np.int32]
    """Catalogue indices, ascending."""
    is_withdrawn: NDArray[np.bool_] | None = None
    """[n] by catalogue index; items from n on are not. None: no item is."""

    @classmethod
    def at(cls, time: int, candidates: NDArray[np.int32], table: ItemTable | None) -> "Offered":
        """Return those of `candidates` that a table of items says are available at a time.

        Args:
            time: microseconds since 1970.
            candidates: catalogue indices, ascending.
            table: of items, if there is one.
        """
        if table is None:
            return cls(candidates)
        return cls(candidates[table.is_available(candidates, time)], table.withdrawn(time))

    def __len__(self) -> int:
        """Return the number of candidates that all sessions share."""
        return len(self.candidates)
