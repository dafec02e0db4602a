"""Rows in order of time, written as a parquet file for each day.

The same rows give the same bytes, so that a day that did not change is not converted again.
"""

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.download.convert import ROW_GROUP, row_groups
from dayahead.download.nested import roots, value_at

Days = Callable[[pa.Table], npt.NDArray[np.int64]]
"""The day of each row, as days since 1970; `_UNDATED` where it has no time."""
_SECONDS = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNDATED = np.iinfo(np.int64).max
_WHOLE = "log"
"""Name of the file where the days of rows are not known before times are read."""


def days_of(schema: pa.Schema, column: str, unit: str) -> Days | None:
    """Return how to tell the days of rows; None where times are text or within lists.

    Args:
        schema: of the rows.
        column: the time, a column or the path of a field.
        unit: `time.unit`, of times that are whole numbers.
    """
    table = schema.empty_table()
    [root] = roots([column], schema.names, None)
    if pa.types.is_list(schema.field(root).type):
        return None
    kind = value_at(table, column).type
    if pa.types.is_timestamp(kind):
        return _by(column, _SECONDS * _PER_SECOND[kind.unit])
    if pa.types.is_date32(kind):
        return _by(column, 1)
    if pa.types.is_signed_integer(kind) and unit in _PER_SECOND:
        return _by(column, _SECONDS * _PER_SECOND[unit])
    return None


def _by(column: str, length: int) -> Days:
    def days(table: pa.Table) -> npt.NDArray[np.int64]:
        times = value_at(table, column)
        numbers = (times.cast(pa.int32()) if pa.types.is_date(times.type) else times).cast("int64")
        found: npt.NDArray[np.int64] = pc.fill_null(numbers, 0).to_numpy() // length
        return np.where(np.asarray(times.is_valid()), found, _UNDATED)

    return days


def write_days(folder: Path, tables: Iterator[pa.Table], days: Days | None) -> None:
    """Write rows into `<day>.parquet`, or all into one file if `days` is None.

    `folder` is empty, and rows come in order of their days; those without a time come last. Nothing
    is written where there is no row.
    """
    pieces = (piece for table in tables for piece in _by_day(table, days))
    for name, group in groupby(pieces, itemgetter(0)):
        groups = row_groups(table for _, table in group)
        first = next(groups)
        with (
            (folder / f"{name}.parquet").open("xb") as file,  # fails where days are out of order
            pq.ParquetWriter(file, first.schema, compression="zstd") as out,
        ):
            for table in chain([first], groups):
                out.write_table(table, row_group_size=ROW_GROUP)


def _by_day(table: pa.Table, days: Days | None) -> Iterator[tuple[str, pa.Table]]:
    if not table.num_rows:
        return
    if days is None:
        yield _WHOLE, table
        return
    found = days(table)
    starts = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(found)], strict=True):
        day = found[start]
        name = "undated" if day == _UNDATED else str(np.datetime64(int(day), "D"))
        yield name, table.slice(start, end - start)
