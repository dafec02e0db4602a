"""Vectorised helpers on columns of events: sorting, numbering, repeats."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ROW

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def sort_events(events: pa.Table, key: str) -> tuple[pa.Table, Ints]:
    """Sort events by (key, time, row) and number the key's values 0, 1, ... along the rows."""
    codes = codes_of(events[key])
    order = np.lexsort((ints(events[ROW]), ints(events[EVENT_TIME]), codes))
    return events.take(order), np.cumsum(is_new(codes[order])) - 1


def find_repeats(groups: Ints, items: Ints, rule: str) -> Flags:
    """Flag the events that `rule` drops; groups (sessions or users) ascend, events are in order.

    The first event of a run (drop_consecutive) or of its item in the group (drop_all) is kept.
    """
    if rule == "drop_consecutive":
        return ~(is_new(groups) | is_new(items))
    drops = np.full(len(groups), rule == "drop_all")
    if rule == "drop_all":
        drops[first_of_pairs(groups, items)] = False
    return drops


def first_of_pairs(groups: Ints, codes: Ints) -> Ints:
    """Find the first row of every pair (group, code); codes are not negative."""
    pairs = groups * (codes.max(initial=0) + 1) + codes
    first: Ints = np.unique(pairs, return_index=True)[1]
    return first


def first_of_each(codes: Ints) -> Ints:
    """Find each value's first row, where values are numbered 0, 1, ... as they appear."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def ints(column: pa.ChunkedArray) -> Ints:
    """Return a column without nulls as int64; a timestamp as microseconds since 1970, UTC."""
    return np.asarray(column.cast(pa.int64()).to_numpy())


def codes_of(column: pa.ChunkedArray) -> Ints:
    """Number a column's values 0, 1, ... in order of appearance; null is -1."""
    indices = column.combine_chunks().dictionary_encode().indices
    codes: Ints = indices.fill_null(-1).to_numpy().astype(np.int64)
    return codes


def is_new(codes: Ints) -> Flags:
    """Flag the rows that differ from the one before."""
    # The prepended value differs from the first one, so that the first row counts as new.
    return np.asarray(np.diff(codes, prepend=codes[:1] - 1) != 0)


def set_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Replace a column, or append it."""
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)
