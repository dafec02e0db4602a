"""What is known of items at a time, besides their clicks: attributes, vectors, availability."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import AVAILABLE_FROM, AVAILABLE_UNTIL, ITEM_ID

EARLIEST, LATEST = -(2**62), 2**62
"""Times before and after all others."""


@dataclass(frozen=True)
class ItemTable:
    """Rows of data/windows/items.parquet, one for each item: see `WindowFolder.items_at`."""

    rows: pa.Table
    """Ordered by item_id, the catalogue index."""

    @cached_property
    def items(self) -> NDArray[np.int32]:
        """Catalogue indices of the items listed, ascending."""
        return np.asarray(self.rows[ITEM_ID].to_numpy(), np.int32)

    def values(self, column: str, n: int) -> NDArray[Any]:
        """Return a column of numbers by catalogue index, [n]; 0 for items that are not listed."""
        found = self.rows[column].to_numpy()
        values = np.zeros(max(n, self._size), found.dtype)
        values[self.items] = found
        return values[:n]

    def vectors(self, column: str, n: int) -> NDArray[np.float32]:
        """Return a column of vectors by catalogue index, [n, D]; zeros for items not listed."""
        dim = self.rows.schema.field(column).type.list_size
        found = self.rows[column].combine_chunks().flatten().to_numpy().reshape(-1, dim)
        values = np.zeros((max(n, self._size), dim), np.float32)
        values[self.items] = found
        return values[:n]

    def is_listed(self, n: int) -> NDArray[np.bool_]:
        """Return whether the table lists each item, [n]."""
        flags = np.zeros(max(n, self._size), bool)
        flags[self.items] = True
        return flags[:n]

    def is_available(self, items: NDArray[np.integer[Any]], time: int) -> NDArray[np.bool_]:
        """Return which of some items are available at a time, microseconds since 1970.

        Items that are not listed are always available.
        """
        found = self.availability(items)
        if found is None:
            return np.ones(len(items), bool)
        start, end = found
        return np.asarray((start <= time) & (time < end))

    def withdrawn(self, time: int) -> NDArray[np.bool_] | None:
        """Return by catalogue index which items are no longer available at a time; None if all are.

        Items above the last one listed are available.
        """
        found = self.availability(np.arange(self._size))
        flags = np.zeros(self._size, bool) if found is None else found[1] <= time
        return flags if flags.any() else None

    def availability(
        self, items: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return from and until when some items are available, microseconds since 1970.

        None where the table has no such columns; items that are not listed are always available.
        """
        if not {AVAILABLE_FROM, AVAILABLE_UNTIL} & {*self.rows.column_names}:
            return None
        size = max(self._size, int(items.max(initial=0)) + 1)
        start, end = (
            self._times(AVAILABLE_FROM, EARLIEST, size),
            self._times(AVAILABLE_UNTIL, LATEST, size),
        )
        return start[items], end[items]

    def _times(self, column: str, default: int, size: int) -> NDArray[np.int64]:
        """Return times by catalogue index, `default` where there is none."""
        times = np.full(size, default)
        if column in self.rows.column_names:
            times[self.items] = self.rows[column].cast(pa.int64()).fill_null(default).to_numpy()
        return times

    @property
    def _size(self) -> int:
        return int(self.items.max(initial=0)) + 1
