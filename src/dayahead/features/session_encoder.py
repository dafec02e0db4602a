"""Live sessions to model input: the workflow's operators on arrays, prepared once."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, ROW, UNKNOWN, VALUE
from dayahead.core.ragged import offsets_of, row_of_each
from dayahead.features.arrays import Ints, codes_of, find_repeats, ints
from dayahead.features.input_types import input_types
from dayahead.features.operators import floats
from dayahead.features.vocabulary import KnownValues
from dayahead.features.workflow import (
    Vocabularies,
    feature_chains,
    input_table,
)
from dayahead.windows.metadata import Statistics

Arrays = dict[str, NDArray[Any]]
"""An array of the events' values per column."""


class SessionEncoder:
    """Encodes events as `workflow.encode` does; a workflow would take 20 ms per session."""

    def __init__(self, statistics: Statistics, vocabularies: Vocabularies) -> None:
        self._rules = statistics.sessions
        self._types = input_types(statistics)
        self._items = KnownValues(vocabularies[ITEM_ID][VALUE])
        self._n_with_age = len(self._items.values)
        self._chains = feature_chains(statistics, vocabularies, {})
        kinds = zip(statistics.features.items(), self._chains, strict=True)
        self.known = {ITEM_ID: self._items} | {
            name: chain.operators[0].known
            for (name, feature), chain in kinds
            if feature.kind == "categorical"
        }
        """The values of item_id and of each categorical feature; more may be added."""

    def encode_session(self, events: pa.Table) -> Arrays:
        """Encode a live session's raw events, as `encode_sessions` does."""
        return self.encode_sessions(events, np.array([0, len(events)]))[0]

    def encode_sessions(
        self, events: pa.Table, offsets: Ints, others: KnownValues | None = None
    ) -> tuple[Arrays, Ints]:
        """Encode raw events of live sessions: session s has the rows offsets[s]:offsets[s + 1].

        `events` has columns of the event table: item_id, event_time and the features' raw columns.
        Equal times are ordered by row number; without one, by the order given. `others` are item
        ids that get distinct numbers although the vocabulary lacks them (`item_numbers`).

        Returns:
            item_id, event_time and the features as in window files, in the order of the events, and
            the sessions' offsets. The data set's rule for repeats is applied, then each session is
            truncated to its last max_length - 1 events: as many as a model reads before a target.
        """
        n_sessions = len(offsets) - 1
        sessions = row_of_each(np.diff(offsets))
        rows = ints(events[ROW]) if ROW in events.column_names else np.arange(len(events))
        order = np.lexsort((rows, ints(events[EVENT_TIME]), sessions))
        items = codes_of(events[ITEM_ID])[order] + 1  # a null is 0
        order = order[~find_repeats(sessions, items, self._rules.repeats)]
        ends = np.cumsum(np.bincount(sessions[order], minlength=n_sessions))
        n_after = ends[sessions[order]] - np.arange(len(order))
        # `<`: one of the max_length events is the target, which is not known yet.
        order = order[n_after < self._rules.max_length]
        lengths = np.bincount(sessions[order], minlength=n_sessions)
        encoded = self.encode(events.take(pa.array(order)), others)
        return encoded, offsets_of(lengths)

    def encode(self, events: pa.Table, others: KnownValues | None = None) -> Arrays:
        """Encode raw events, row by row: item_id, event_time (microseconds) and the features."""
        table = input_table(events, self._types)
        raw = {name: table[name].combine_chunks() for name in table.column_names}
        raw |= {name: floats(each) for name, each in raw.items() if each.type == pa.float64()}
        indices = self.item_indices(table[ITEM_ID])
        numbers = indices if others is None else self.item_numbers(table[ITEM_ID], others)
        # An item that was added has no age, just as one that is unknown.
        raw[ITEM_ID] = np.where(indices < N_RESERVED + self._n_with_age, indices, np.int32(UNKNOWN))
        encoded = {ITEM_ID: numbers, EVENT_TIME: np.array(raw[EVENT_TIME])}
        for chain in self._chains:
            encoded |= chain.transform(raw)
        return encoded

    def item_indices(self, items: pa.ChunkedArray) -> NDArray[np.int32]:
        """Look up raw item ids; 1 (unknown) for null and for ids that are not known."""
        return self._items.indices(items.cast(self._types[ITEM_ID]).combine_chunks())

    def item_numbers(self, items: pa.ChunkedArray, others: KnownValues) -> NDArray[np.int32]:
        """Look up raw item ids; those of `others` that are not known follow the vocabulary.

        A session's unknown items thus have distinct numbers, as in a window of a longer log.
        """
        indices = self.item_indices(items)
        positions = others.positions(items.cast(self._types[ITEM_ID]).combine_chunks())
        is_other = (indices == UNKNOWN) & (positions >= 0)
        first = np.int32(N_RESERVED + len(self._items.values))
        return np.where(is_other, first + positions, indices)
