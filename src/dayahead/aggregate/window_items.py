"""The items of each window: their number, the number of new ones, and drift of popularity."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dayahead.aggregate.targets import Ints
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.windows.folder import WindowFolder

N_TOP: Final = 100
"""Number of most popular items, whose change from window to window is reported as drift."""


@dataclass(frozen=True)
class WindowItems:
    """The items in the train sessions of a window."""

    window: str
    n_items: int
    n_new: int
    """Items in no train session of an earlier window."""
    kept: float | None
    """Share of its most popular items that were among those of the window before; None at first."""


def items_by_window(folder: WindowFolder) -> Iterator[tuple[WindowItems, Ints]]:
    """Yield the items of the kept windows in order of time, and the events of each index."""
    is_seen = np.zeros(N_RESERVED + len(folder.vocabulary(ITEM_ID)), bool)
    before: set[int] | None = None
    for window in folder.windows:
        counts = folder.item_counts(window, "train")
        counts[:N_RESERVED] = 0
        top = _most_popular(counts)
        items = WindowItems(
            window=window.name,
            n_items=int(np.count_nonzero(counts)),
            n_new=int(np.count_nonzero(counts[~is_seen])),
            kept=None if before is None else len(top & before) / max(1, len(top)),
        )
        yield items, counts
        before = top
        is_seen |= counts > 0


def _most_popular(counts: Ints) -> set[int]:
    """Return the items with most events; of equal ones those with the lower index."""
    items = counts.nonzero()[0]
    return set(items[np.argsort(-counts[items], kind="stable")[:N_TOP]].tolist())
