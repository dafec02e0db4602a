"""What a model knows of items besides their clicks, so that sessions need not send it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ITEM_ID, TIMESTAMP
from dayahead.core.errors import ConfigError
from dayahead.core.ragged import offsets_of
from dayahead.features.arrays import Ints, ints, set_column
from dayahead.features.input_types import input_types
from dayahead.features.session_encoder import Arrays, SessionEncoder
from dayahead.features.vocabulary import KnownValues
from dayahead.model.stored_items import StoredItems
from dayahead.serve.ranking import Available
from dayahead.serve.raw_sessions import RawSessions
from dayahead.train.batches import Sessions
from dayahead.windows.metadata import Statistics


@dataclass(frozen=True)
class KnownItems:
    """The items of a saved model, and the encoder that puts what is known into sessions."""

    statistics: Statistics
    """Of the model."""
    items: StoredItems | None
    """None: the data set has no table of items."""
    encoder: SessionEncoder

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The model's features whose values are in the table."""
        about = self.statistics.items
        # Relative numbers read a category that may be no feature of the model.
        related = {each.newest.relative_to for each in self.statistics.features.values()}
        read = {*self.statistics.features, *related}
        return () if about is None else tuple(name for name in about.features if name in read)

    @cached_property
    def column_types(self) -> dict[str, Any]:
        """Types of the raw columns of events: item_id, event_time, features not known."""
        given = {n: t for n, t in self._input_types.items() if n not in self.features}
        return given | {EVENT_TIME: TIMESTAMP}

    @cached_property
    def _input_types(self) -> Mapping[str, Any]:
        return input_types(self.statistics)

    def encode_sessions(
        self, events: pa.Table, offsets: Ints, others: KnownValues | None
    ) -> Sessions:
        """Encode raw events of live sessions, as `SessionEncoder.encode_sessions` does."""
        arrays, ends = self.encoder.encode_sessions(self._filled(events), offsets, others)
        return _as_sessions(self._with_numbers(arrays), ends)

    def encode(self, events: pa.Table, lengths: Ints) -> Sessions:
        """Encode raw events, row by row, of sessions of these lengths."""
        arrays = self.encoder.encode(self._filled(events))
        return _as_sessions(self._with_numbers(arrays), offsets_of(lengths))

    def _filled(self, events: pa.Table) -> pa.Table:
        """Add the raw values of items, null where the table has none, and for numbers."""
        if not self.features or self.items is None:
            return events
        places = self.items.places(self.encoder.item_indices(events[ITEM_ID]))
        rows = pa.array(places, mask=places < 0)
        for name in self.features:
            is_raw = name in self.items.attributes
            values = self.items.rows[name].take(rows) if is_raw else pa.nulls(len(events))
            events = set_column(events, name, values.cast(self._input_types[name]))
        return events

    def _with_numbers(self, arrays: Arrays) -> Arrays:
        """Fill in the numeric features of items, which the table holds already encoded."""
        if self.items is None or not (numbers := {*self.features} - {*self.items.attributes}):
            return arrays
        places = self.items.places(arrays[ITEM_ID])
        for name in numbers & arrays.keys():
            found = self.items.rows[name].to_numpy()[places] if len(self.items.rows) else 0
            arrays[name] = np.where(places >= 0, found, arrays[name]).astype(np.float32)
        return arrays

    def available(self, sessions: RawSessions, now: int) -> Available | None:
        """Return which items are available at each session's last event; None: all, always.

        `now`, microseconds since 1970, is the time of a session without events.
        """
        found = self._availability
        if found is None:
            return None
        times = np.full(len(sessions), now)
        times[np.diff(sessions.offsets) > 0] = 0
        np.maximum.at(times, sessions.row_sessions, ints(sessions.events[EVENT_TIME]))
        return Available(*map(torch.from_numpy, (*found, times)))

    @cached_property
    def _availability(self) -> tuple[Ints, Ints] | None:
        if self.items is None:
            return None
        n = int(self.items.table.items.max(initial=0)) + 1
        return self.items.table.availability(np.arange(n))

    def matching(self, where: Mapping[str, Sequence[str]]) -> NDArray[np.int32]:
        """Return the catalogue indices of items that have these values of attributes, as text.

        Raises:
            ConfigError: the model does not know these attributes.
        """
        if self.items is None and where:
            raise ConfigError(
                f"where: {', '.join(where)}: the model knows no attributes of items; name a table "
                f"of them as items in the data set's file"
            )
        return np.zeros(0, np.int32) if self.items is None else self.items.matching(where)


def _as_sessions(arrays: Arrays, offsets: NDArray[np.int64]) -> Sessions:
    columns = {name: torch.from_numpy(values) for name, values in arrays.items()}
    columns |= {name: each.long() for name, each in columns.items() if each.dtype == torch.int32}
    return Sessions(columns, torch.from_numpy(offsets))
