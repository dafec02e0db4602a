"""NVTabular's Groupby and ListSlice without their walk over rows: pandas frames through Arrow.

On cudf frames they are NVTabular's own. Lists are Arrow's, offsets into one array of values.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from merlin.dag import ColumnSelector
from numpy.typing import NDArray
from nvtabular.ops import Groupby, ListSlice
from scipy.sparse import csr_array

Frame = Any
"""A pandas or a cudf data frame."""
_COUNTS = {"count": "count", "nunique": "count_distinct"}
_FLOATS = {"sum": "sum", "mean": "mean", "var": "variance", "std": "stddev"}
_REDUCTIONS = {**_COUNTS, **_FLOATS, "min": "min", "max": "max"}
"""What Arrow computes too, by NVTabular's names."""
_OPTIONS = {
    "sum": pc.ScalarAggregateOptions(min_count=0),
    "var": pc.VarianceOptions(ddof=1),
    "std": pc.VarianceOptions(ddof=1),
}


class ListColumn(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]
    """Lists in a pandas column; pandas 1.5 itself cannot even print those of unequal lengths."""

    def __array__(self, dtype: object = None) -> NDArray[Any]:
        """One Python list per place."""
        lists = np.empty(len(self), dtype=object)
        lists[:] = self._data.to_pylist()
        return lists


class GroupSessions(Groupby):  # type: ignore[misc]
    """Groupby, vectorised for pandas: same arguments, columns, schema and values.

    Rows are sorted once, by the groups and then by `sort_cols`; a list is a stretch of them. Two
    differences: rows that are equal in all `sort_cols` keep their order (NVTabular's, with one such
    column, may not), and lists are Arrow's. What Arrow cannot do (medians, functions of one's
    own, columns of mixed types) is handed over to Groupby.
    """

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """One row per group, in order of the groups; rows that lack one are left out."""
        names = {name for names in self.conv_aggs.values() for name in names}
        if isinstance(df, pd.DataFrame) and names <= {list, *_REDUCTIONS}:
            try:
                return self._grouped(col_selector, df)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                pass
        return super().transform(col_selector, df)

    def _grouped(self, selector: ColumnSelector, df: pd.DataFrame) -> pd.DataFrame:
        keys = [_group_codes(df[name]) for name in self.groupby_cols]
        order = _order([_sort_codes(df[name], self.ascending) for name in self.sort_cols], len(df))
        for key in reversed(keys):
            order = order[_counting_sort(key[order])]
        for key in keys:
            order = order[key[order] >= 0]  # a null has no group
        bounds = _bounds([key[order] for key in keys])
        columns = {name: _taken(df[name], order[bounds[:-1]]) for name in self.groupby_cols}
        for name, (source,) in self.column_mapping(selector).items():
            if name not in columns:
                how = name[len(source + self.name_sep) :]
                columns[name] = self._aggregated(df[source], how, order, bounds)
        return pd.DataFrame(columns)

    def _aggregated(
        self, column: pd.Series, how: str, order: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> pd.Series:
        if how == "list":
            offsets = pa.array(bounds.astype(np.int32))
            values = _arrow(column).take(pa.array(order))
            return _series(pa.ListArray.from_arrays(offsets, values))
        if how in ("first", "last"):
            # Of descending rows NVTabular calls the lowest the first.
            at_begin = (how == "first") == bool(self.ascending)
            return _taken(column, order[bounds[:-1] if at_begin else bounds[1:] - 1])
        return _reduced(column, how, order, bounds)


class SliceLists(ListSlice):  # type: ignore[misc]
    """ListSlice, vectorised for pandas: same arguments, columns, schema and values.

    Columns without lists pass unchanged (ListSlice fails on them), so that a graph need not fork
    and run what comes before twice. Padding is left to ListSlice.
    """

    def transform(self, col_selector: ColumnSelector, df: Frame) -> Frame:
        """Cut every list to [start:end]."""
        if not isinstance(df, pd.DataFrame) or self.pad:
            return super().transform(col_selector, df)
        return pd.DataFrame({name: self._sliced(df[name]) for name in col_selector.names})

    def _sliced(self, column: pd.Series) -> pd.Series:
        if isinstance(column.dtype, np.dtype) and column.dtype != object:
            return column
        lists = _arrow(column)
        if not len(lists) or not pa.types.is_list(lists.type):
            return column
        offsets = lists.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(offsets)
        begin, end = (_place(edge, lengths) for edge in (self.start, self.end))
        bounds = np.append(0, np.cumsum(np.maximum(end - begin, 0)))
        shift = np.repeat(offsets[:-1] + begin - bounds[:-1], np.diff(bounds))
        values = lists.values.take(pa.array(shift + np.arange(len(shift))))
        return _series(pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), values))


def _group_codes(column: pd.Series) -> NDArray[np.int64]:
    """Numbers from 0 on, in the order of the values; null is -1."""
    values = _plain(column)
    if values.dtype.kind == "i" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < 2 * len(values):  # as good as numbered: no table of values is needed
            return values.astype(np.int64) - low
    codes: NDArray[np.int64] = pd.factorize(column, sort=True)[0]
    return codes


def _sort_codes(column: pd.Series, ascending: bool) -> NDArray[Any]:
    """Numbers whose ascending order is the one asked for, nulls last."""
    values = _plain(column)
    if values.dtype.kind in "iu":
        return values if ascending else ~values
    if values.dtype.kind == "f":
        return values if ascending else -values
    codes = pd.factorize(column, sort=True)[0]
    return np.where(codes < 0, len(codes), codes if ascending else -codes)


def _plain(column: pd.Series) -> NDArray[Any]:
    """A column's values, numbers as NumPy's where none is null."""
    if isinstance(column.dtype, pd.Int64Dtype) and not column.hasnans:
        column = column.astype(np.int64)
    values: NDArray[Any] = column.to_numpy()
    return values


def _order(columns: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """Sort `n` rows by the first column, then the next; equal rows keep their order."""
    tied = np.ones(max(n - 1, 0), dtype=bool)
    for column in columns:
        if (tied & ~(column[1:] >= column[:-1])).any():  # so that NaN, too, must be sorted
            order: NDArray[np.int64] = np.lexsort(columns[::-1])
            return order
        tied &= column[1:] == column[:-1]
    return np.arange(n)


def _counting_sort(codes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Sort codes from -1 on; equal ones keep their order. Six times as fast as comparing them.

    It is how a sparse matrix with an entry per code is brought into order of its rows.
    """
    n = len(codes)
    entries = (np.ones(n, np.int8), (codes + 1, np.arange(n, dtype=np.int32)))
    shape = (codes.max(initial=-1) + 2, n)
    order: NDArray[np.int32] = csr_array(entries, shape=shape).indices
    return order


def _bounds(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """First row of every group, and the number of rows."""
    n = len(keys[0])
    changes = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.concatenate([np.zeros(min(n, 1), np.int64), np.flatnonzero(changes) + 1, [n]])


def _reduced(
    column: pd.Series, how: str, order: NDArray[np.int64], bounds: NDArray[np.int64]
) -> pd.Series:
    """Reduce every group to a number as pandas does: without nulls, NaN among them."""
    values = pa.array(column, from_pandas=True).take(pa.array(order))
    groups = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    grouped = pa.table({"group": groups, "value": values}).group_by("group", use_threads=False)
    result = grouped.aggregate([("value", _REDUCTIONS[how], _OPTIONS.get(how))]).column(1)
    if how in _COUNTS:
        return result.to_pandas().astype(np.int32)
    return result.to_pandas().astype(np.float32 if how in _FLOATS else column.dtype)


def _place(edge: int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a slice's edge falls in lists of these lengths."""
    return np.maximum(lengths + edge, 0) if edge < 0 else np.minimum(lengths, edge)


def _taken(column: pd.Series, places: NDArray[np.int64]) -> pd.Series:
    return column.take(places).reset_index(drop=True)


def _arrow(column: pd.Series) -> pa.Array:
    """Give a column to Arrow, NaN as NaN."""
    extended = not isinstance(column.dtype, np.dtype)
    values = pa.array(column.array if extended else column.to_numpy())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _series(lists: pa.ListArray) -> pd.Series:
    return pd.Series(ListColumn(pa.chunked_array([lists])))
