"""Features of items that sessions need not send: the model's table of items has them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import ITEM_ID, N_RESERVED, UNKNOWN
from dayahead.features.session_encoder import Arrays
from dayahead.model.stored_items import StoredItems
from dayahead.windows.metadata import Statistics

Indices = Callable[[pa.ChunkedArray], NDArray[np.int32]]
"""From raw item ids to catalogue indices."""


@dataclass(frozen=True)
class ItemValues:
    """Values of a model's features that belong to items."""

    statistics: Statistics
    """Of the model."""
    items: StoredItems | None
    indices: Indices

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The model's features whose values are in the table."""
        about = self.statistics.items
        return () if about is None else tuple(n for n in about.features if n in self._columns)

    @property
    def _columns(self) -> set[str]:
        """Raw columns of the model: relative numbers read a category that may be no feature."""
        related = {each.newest.relative_to for each in self.statistics.features.values()}
        return {*self.statistics.features, *(name for name in related if name is not None)}

    def fill(self, events: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
        """Add the raw values of items to events, null where the table has none.

        Numbers are null here, and `encode` puts in what the table has, which is encoded.
        """
        if not self.names or self.items is None:
            return events
        places = self.items.places(self.indices(events[ITEM_ID]))
        rows = pa.array(places, mask=places < 0)
        for name in self.names:
            is_raw = name in self.items.attributes
            values = self.items.rows[name].take(rows) if is_raw else pa.nulls(len(events))
            events = events.append_column(name, values.cast(types[name]))
        return events

    def encode(self, arrays: Arrays) -> Arrays:
        """Put the numbers of items into encoded events."""
        if self.items is None or not (numbers := set(self.names) - set(self.items.attributes)):
            return arrays
        items: NDArray[Any] = arrays[ITEM_ID]
        places = self.items.places(np.where(items < N_RESERVED, UNKNOWN, items))
        for name in numbers & arrays.keys():
            found = self.items.rows[name].to_numpy()[places]
            arrays[name] = np.where(places >= 0, found, arrays[name]).astype(np.float32)
        return arrays
