"""Vocabularies that only grow: raw values in the order in which they became frequent enough.

An index, once given, stays: values follow (window of admission, event time, row number), so a
longer log only appends. 0 is padding and 1 unknown; the first value has index 2. A column's census
counts every value, those that are still too rare among them; its vocabulary is the part admitted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.core.columns import (
    EVENT_TIME,
    EVENTS,
    FIRST_TIME,
    FIRST_WINDOW,
    INDEX,
    N_RESERVED,
    TIMESTAMP,
    VALUE,
)
from dayahead.features.arrays import first_of_each

_NEW = "new"


def vocabulary_schema(value_type: pa.DataType) -> pa.Schema:
    """Columns of vocabulary/<column>.parquet."""
    return pa.schema(
        [
            pa.field(INDEX, pa.int32(), nullable=False),
            pa.field(VALUE, value_type, nullable=False),
            pa.field(FIRST_WINDOW, pa.string(), nullable=False),  # in which it was admitted
            pa.field(FIRST_TIME, TIMESTAMP, nullable=False),  # of its first event, ever
            pa.field(EVENTS, pa.int64(), nullable=False),  # over kept events of standing windows
        ]
    )


def empty_census(value_type: pa.DataType) -> pa.Table:
    """A census that knows nothing: a vocabulary's columns, index and window null if too rare."""
    schema = vocabulary_schema(value_type)
    for name in (INDEX, FIRST_WINDOW):
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_nullable(True))
    return schema.empty_table()


def occurrences(events: pa.Table, column: str) -> pa.Table:
    """List a window's values in order of their first event: VALUE, FIRST_TIME, EVENTS; no nulls.

    The events are in order of (event time, row number).
    """
    named = events.filter(events[column].is_valid())
    codes = named[column].combine_chunks().dictionary_encode().indices.to_numpy()
    # Codes are given in order of appearance, so code i belongs to the i-th row kept.
    first = named.take(pa.array(first_of_each(codes)))
    counts = pa.array(np.bincount(codes, minlength=len(first)).astype(np.int64))
    return pa.table({VALUE: first[column], FIRST_TIME: first[EVENT_TIME], EVENTS: counts})


def grown(
    census: pa.Table,
    windows: Sequence[tuple[str, pa.Table]],
    min_count: int = 1,
    looks_ahead: bool = False,
) -> pa.Table:
    """Count what later windows bring, and admit what has become frequent enough.

    Args:
        census: what is known; rows and indices keep their places, events grow.
        windows: name and `occurrences` of each window, in order of time.
        min_count: a value is admitted in the window in which its events reach this number.
        looks_ahead: it is admitted in its first window, if its events reach it in any. Indices
            then change when windows are added.
    """
    rows = [census.append_column(_NEW, pa.array(np.zeros(len(census), bool)))]
    for name, found in windows:
        more = {FIRST_WINDOW: pa.array([name] * len(found), pa.string()),
                _NEW: pa.array(np.ones(len(found), bool))}  # fmt: skip
        rows.append(pa.table({n: found[n] for n in found.column_names} | more))
    table = pa.concat_tables(rows, promote_options="permissive")
    codes = table[VALUE].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    so_far, totals = _counts(codes, table[EVENTS].to_numpy())
    first = first_of_each(codes)  # each value's first row, in order of code
    enough = (totals[codes] if looks_ahead else so_far) >= min_count
    known = np.zeros(len(first), dtype=bool)
    known[codes[: len(census)]] = census[INDEX].is_valid().to_numpy()
    # Where each value is admitted: the first of its rows, in order of time, with enough events.
    rows_enough = np.flatnonzero(enough & ~known[codes])
    admitted_codes, places = np.unique(codes[rows_enough], return_index=True)
    order = np.argsort(places, kind="stable")
    found = _census(table, first, totals, admitted_codes[order], rows_enough[places[order]])
    return found.cast(census.schema).combine_chunks()


def _counts(
    codes: NDArray[np.int64], events: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Events of a row's value up to and with the row; and of every value in all."""
    order = np.argsort(codes, kind="stable")
    sums = np.cumsum(events[order])
    ends = np.cumsum(np.bincount(codes)) - 1 if len(codes) else np.empty(0, np.int64)
    totals = np.diff(sums[ends], prepend=0)
    so_far = np.empty_like(sums)
    so_far[order] = sums - (sums[ends] - totals)[codes[order]]
    return so_far, totals


def _census(
    table: pa.Table,
    first: NDArray[np.int64],
    totals: NDArray[np.int64],
    admitted_codes: NDArray[np.int64],
    admitted_rows: NDArray[np.int64],
) -> pa.Table:
    kept = table.take(pa.array(first))
    is_new = kept[_NEW].to_numpy()
    index = np.where(is_new, 0, kept[INDEX].fill_null(0).to_numpy()).astype(np.int32)
    begin = N_RESERVED + np.count_nonzero(index)
    index[admitted_codes] = np.arange(begin, begin + len(admitted_codes))
    names = kept[FIRST_WINDOW].to_numpy(zero_copy_only=False)
    names[admitted_codes] = table[FIRST_WINDOW].take(pa.array(admitted_rows)).to_pylist()
    columns: dict[str, Any] = {
        INDEX: pa.array(index, mask=index == 0),
        VALUE: kept[VALUE],
        FIRST_WINDOW: pa.array(names, pa.string(), mask=index == 0),
        FIRST_TIME: kept[FIRST_TIME],
        EVENTS: pa.array(totals),
    }
    return pa.table(columns)


def admitted(census: pa.Table) -> pa.Table:
    """The vocabulary: values with an index, in its order."""
    schema = vocabulary_schema(census.schema.field(VALUE).type)
    known = census.filter(census[INDEX].is_valid()).sort_by(INDEX)
    return known.select(schema.names).cast(schema).combine_chunks()


def n_held(vocabulary: pa.Table, window: str) -> int:
    """How many values were admitted up to and with the window called `window`."""
    return int(pc.sum(pc.less_equal(vocabulary[FIRST_WINDOW], window)).as_py() or 0)


def indices_of(values: pa.Array, vocabulary: pa.Table) -> pa.Array:
    """Look raw values up: int32, 1 (unknown) for null and for what the vocabulary does not hold."""
    known = vocabulary[VALUE].combine_chunks()
    places = pc.index_in(values, value_set=known, skip_nulls=True)
    return pc.add(places.fill_null(-1), pa.scalar(N_RESERVED, pa.int32()))
