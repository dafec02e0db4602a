"""Append-only vocabularies: raw values in the order in which they reached their minimum count.

An index never changes: values are ordered by (window in which they entered, event time, row
number), so a longer log only appends. 0 is padding and 1 unknown; the first value has index 2. A
column's value counts cover every value met so far; its vocabulary is those above `min_count`.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.core.columns import (
    EVENT_TIME,
    EVENTS,
    FIRST_TIME,
    FIRST_WINDOW,
    INDEX,
    LATEST_TIME,
    N_RESERVED,
    TIMESTAMP,
    VALUE,
)
from dayahead.features.arrays import Ints, codes_of, first_of_each

FEW = 1_000
"""Fewer values are looked up in a hash table, which is kept; Arrow builds one for each call."""


def vocabulary_schema(value_type: pa.DataType) -> pa.Schema:
    """Columns of vocabulary/<column>.parquet."""
    return pa.schema(
        [
            pa.field(INDEX, pa.int32(), nullable=False),
            pa.field(VALUE, value_type, nullable=False),
            pa.field(FIRST_WINDOW, pa.string(), nullable=False),  # in which it got its index
            # Of its first event; LATEST_TIME where it has none.
            pa.field(FIRST_TIME, TIMESTAMP, nullable=False),
            pa.field(EVENTS, pa.int64(), nullable=False),  # over all kept windows
        ]
    )


def empty_value_counts(value_type: pa.DataType) -> pa.Table:
    """Value counts of no events: a vocabulary's columns, index and window null below min_count."""
    fields = vocabulary_schema(value_type)
    nullable = [field.with_nullable(field.name in (INDEX, FIRST_WINDOW)) for field in fields]
    return pa.schema(nullable).empty_table()


def count_values(events: pa.Table, column: str) -> pa.Table:
    """List a window's values in order of their first event: VALUE, FIRST_TIME, EVENTS; no nulls.

    The events are in order of (event time, row number).
    """
    events = events.filter(events[column].is_valid())
    codes = codes_of(events[column])
    first = events.take(pa.array(first_of_each(codes)))
    counts = pa.array(np.bincount(codes, minlength=len(first)).astype(np.int64))
    return pa.table({VALUE: first[column], FIRST_TIME: first[EVENT_TIME], EVENTS: counts})


def listed_values(values: pa.ChunkedArray) -> pa.Table:
    """List values of a table of items as `count_values` does: they have no event yet."""
    distinct = values.combine_chunks().unique().drop_null()
    times = pa.repeat(pa.scalar(LATEST_TIME, pa.int64()), len(distinct)).cast(TIMESTAMP)
    events = pa.repeat(pa.scalar(0, pa.int64()), len(distinct))
    return pa.table({VALUE: distinct, FIRST_TIME: times, EVENTS: events})


def add_value_counts(
    counts: pa.Table,
    windows: Sequence[tuple[str, pa.Table]],
    min_count: int = 1,
    looks_ahead: bool = False,
) -> pa.Table:
    """Add the counts of later windows, and give an index to the values that reach `min_count`.

    Args:
        counts: of earlier windows; the order of its rows and its indices stay.
        windows: name and `count_values` of each window, in order of time; a window's grace counts
            as another one, whose name sorts after it.
        min_count: a value gets its index in the window in which its events reach this number; 0:
            a value that is only listed gets one too.
        looks_ahead: it gets its index in its first window, if its events reach the number over
            all windows. Indices then change when windows are added.
    """
    tables = [
        found.append_column(FIRST_WINDOW, pa.array([name] * len(found), pa.string()))
        for name, found in windows
    ]
    rows = pa.concat_tables([counts, *tables], promote_options="permissive")
    codes = codes_of(rows[VALUE])
    events = pd.Series(rows[EVENTS].to_numpy()).groupby(codes)
    so_far, totals = events.cumsum().to_numpy(), events.sum().to_numpy()
    values = rows.take(pa.array(first_of_each(codes)))
    # Copied, because Arrow's memory is read-only.
    index = values[INDEX].fill_null(0).to_numpy().copy()
    is_frequent = (totals[codes] if looks_ahead else so_far) >= min_count
    entering = np.flatnonzero(is_frequent & (index[codes] == 0))
    # Each value enters once, in the order of the rows in which they reach the minimum.
    entering = entering[np.sort(np.unique(codes[entering], return_index=True)[1])]
    begin = N_RESERVED + np.count_nonzero(index)
    index[codes[entering]] = np.arange(begin, begin + len(entering))
    first_windows = values[FIRST_WINDOW].to_numpy()
    first_windows[codes[entering]] = rows[FIRST_WINDOW].take(pa.array(entering)).to_numpy()
    added = {
        INDEX: pa.array(index, mask=index == 0),
        VALUE: values[VALUE],
        FIRST_WINDOW: pa.array(first_windows, pa.string(), mask=index == 0),
        FIRST_TIME: rows[FIRST_TIME].take(pa.array(_first_events(rows, codes))),
        EVENTS: pa.array(totals),
    }
    return pa.table(added).cast(counts.schema).combine_chunks()


def _first_events(rows: pa.Table, codes: Ints) -> Ints:
    """Find the first row with an event of each value, else its first row."""
    found = first_of_each(codes)
    has_event = np.flatnonzero(rows[EVENTS].to_numpy() > 0)
    found[codes[has_event[::-1]]] = has_event[::-1]
    return found


def vocabulary_of(counts: pa.Table) -> pa.Table:
    """Return the values that have an index, in its order."""
    schema = vocabulary_schema(counts.schema.field(VALUE).type)
    known = counts.filter(counts[INDEX].is_valid()).sort_by(INDEX)
    return known.select(schema.names).cast(schema).combine_chunks()


class KnownValues:
    """Table to look values up in: many of a window, or a few of a session."""

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        self.values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values

    def add(self, values: pa.Array) -> None:
        """Append values that are not known."""
        start = len(self.values)
        self.values = pa.concat_arrays([self.values, values])
        self._positions.update(zip(values.to_pylist(), range(start, len(self.values)), strict=True))

    def positions(self, values: pa.Array) -> NDArray[np.int32]:
        """Look up values: -1 for null and for values that are not known."""
        if len(values) < FEW or "_positions" in vars(self):
            found = [self._positions.get(value, -1) for value in values.to_pylist()]
            return np.array(found, np.int32)
        positions = pc.index_in(values, value_set=self.values, skip_nulls=True)
        return np.asarray(positions.fill_null(-1).to_numpy())

    def indices(self, values: pa.Array, n_known: Ints | None = None) -> NDArray[np.int32]:
        """Look up a vocabulary's values: 1 (unknown) for null and for values not in it.

        With `n_known`, a number for each value, only that many first ones of the vocabulary count.
        """
        positions = self.positions(values)
        if n_known is not None:
            positions = np.where(positions < n_known, positions, np.int32(-1))
        return positions + np.int32(N_RESERVED)

    @cached_property
    def _positions(self) -> dict[int | str, int]:
        return {value: position for position, value in enumerate(self.values.to_pylist())}
