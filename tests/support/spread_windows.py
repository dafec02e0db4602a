"""Windows whose sessions start every hour, with clicks five minutes apart."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, SESSION_ID, SESSION_START
from dayahead.core.files import write_parquet
from support.window_folders import write_window_folder


def write_spread_windows(folder: Path, days: list[list[list[int]]], **more: Any) -> Path:
    """Write a folder of windows, whose n-th session of a day starts n hours after midnight."""
    folder = write_window_folder(folder, days, **more)
    for path in folder.glob("session_start*.parquet"):
        rewrite(path, _spread)
    return folder


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a changed table in place of a table."""
    write_parquet(path, change(pq.read_table(path, partitioning=None)))


def replaced(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """Return a table with other values in one column."""
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


def _spread(table: pa.Table) -> pa.Table:
    numbers = [int(name[2:]) for name in table[SESSION_ID].to_pylist()]
    starts = table[SESSION_START].to_pylist()
    starts = [
        start + number * timedelta(hours=1) for start, number in zip(starts, numbers, strict=True)
    ]
    times = [
        [start + n * timedelta(minutes=5) for n in range(len(row))]
        for start, row in zip(starts, table[EVENT_TIME].to_pylist(), strict=True)
    ]
    return replaced(replaced(table, SESSION_START, starts), EVENT_TIME, times)
