"""Vocabularies that only grow: raw values in the order of their first occurrence.

An index, once given, stays: values follow (window, event time, row number), so a longer log only
appends. 0 is padding and 1 unknown; the first value has index 2.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.columns import (
    EVENT_TIME,
    EVENTS,
    FIRST_TIME,
    FIRST_WINDOW,
    INDEX,
    N_RESERVED,
    TIMESTAMP,
    VALUE,
)


def vocabulary_schema(value_type: pa.DataType) -> pa.Schema:
    """Columns of vocabulary/<column>.parquet."""
    return pa.schema(
        [
            pa.field(INDEX, pa.int32(), nullable=False),
            pa.field(VALUE, value_type, nullable=False),
            pa.field(FIRST_WINDOW, pa.string(), nullable=False),
            pa.field(FIRST_TIME, TIMESTAMP, nullable=False),
            pa.field(EVENTS, pa.int64(), nullable=False),  # over kept events of standing windows
        ]
    )


def empty_vocabulary(value_type: pa.DataType) -> pa.Table:
    """A vocabulary that knows nothing yet."""
    return vocabulary_schema(value_type).empty_table()


def occurrences(events: pa.Table, column: str) -> pa.Table:
    """List a window's values in order of their first event: VALUE, FIRST_TIME, EVENTS; no nulls.

    The events are in order of (event time, row number).
    """
    named = events.filter(events[column].is_valid())
    ones = pa.array(np.ones(len(named), dtype=np.int64))
    return _first_of_each(
        pa.table({VALUE: named[column], FIRST_TIME: named[EVENT_TIME], EVENTS: ones})
    )


def grown(vocabulary: pa.Table, windows: Sequence[tuple[str, pa.Table]]) -> pa.Table:
    """Append what later windows bring.

    Args:
        vocabulary: what is known; its rows keep their places, their events grow.
        windows: name and `occurrences` of each window, in order of time.
    """
    columns = [VALUE, FIRST_WINDOW, FIRST_TIME, EVENTS]
    parts = [vocabulary.select(columns)]
    for name, found in windows:
        named = found.append_column(FIRST_WINDOW, pa.array([name] * len(found), pa.string()))
        parts.append(named.select(columns))
    merged = _first_of_each(pa.concat_tables(parts, promote_options="permissive"))
    index = np.arange(N_RESERVED, N_RESERVED + len(merged), dtype=np.int32)
    merged = merged.append_column(INDEX, pa.array(index))
    schema = vocabulary.schema
    return merged.select(schema.names).cast(schema).combine_chunks()


def indices_of(values: pa.Array, vocabulary: pa.Table) -> pa.Array:
    """Look raw values up: int32, 1 (unknown) for null and for what the vocabulary does not hold."""
    known = vocabulary[VALUE].combine_chunks()
    places = pc.index_in(values, value_set=known, skip_nulls=True)
    return pc.add(places.fill_null(-1), pa.scalar(N_RESERVED, pa.int32()))


def _first_of_each(rows: pa.Table) -> pa.Table:
    """Keep the first row of every VALUE, in the order given, with the sum of EVENTS."""
    codes = rows[VALUE].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    # Codes are given in order of appearance, so code i belongs to the i-th row kept.
    first = np.unique(codes, return_index=True)[1]
    events = np.bincount(codes, weights=rows[EVENTS].to_numpy(), minlength=len(first))
    kept = rows.take(pa.array(first))
    place = kept.column_names.index(EVENTS)
    return kept.set_column(place, EVENTS, pa.array(events.astype(np.int64)))
