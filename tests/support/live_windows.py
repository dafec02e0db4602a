"""Windows whose sessions are spread over the day, and models that count them as they come."""

from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, SESSION_ID, SESSION_START
from dayahead.core.files import write_parquet
from support.memory_models import MEMORY_WITH_GPT2
from support.tiny_settings import merge_sections

SPREAD = timedelta(hours=1)
LIVE = {"model": {"architecture": "memory"}, "live": {"tick": "30min", "session_gap": "30min"}}
WITH_GPT2 = merge_sections(LIVE, **MEMORY_WITH_GPT2)


def spread_sessions(folder, apart=SPREAD):
    """Let a session of a window folder start `apart` from the next, and click every 5 minutes."""
    for path in folder.glob("session_start*.parquet"):
        rewrite(path, lambda table: _spread(table, apart))
    return folder


def rewrite(path, change):
    write_parquet(path, change(pq.read_table(path, partitioning=None)))


def _spread(table, apart):
    numbers = [int(name[2:]) for name in table[SESSION_ID].to_pylist()]
    starts = table[SESSION_START].to_pylist()
    starts = [start + number * apart for start, number in zip(starts, numbers, strict=True)]
    times = [
        [start + n * timedelta(minutes=5) for n in range(len(row))]
        for start, row in zip(starts, table[EVENT_TIME].to_pylist(), strict=True)
    ]
    return replaced(replaced(table, SESSION_START, starts), EVENT_TIME, times)


def replaced(table, name, values):
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))
