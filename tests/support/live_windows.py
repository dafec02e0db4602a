"""Windows whose sessions are spread over the day, and models that count them as they come."""

import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, SESSION_ID, SESSION_START, VALUE
from dayahead.core.files import write_parquet
from dayahead.windows.folder import WindowFolder
from support.memory_models import MEMORY_WITH_GPT2
from support.tiny_settings import merge_sections
from support.window_folders import day

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


def events_of(folder, number):
    """Return a day's clicks in order of time, as clients report them."""
    windows = WindowFolder(folder)
    raw = windows.vocabulary(ITEM_ID)[VALUE].to_pylist()
    found = []
    for row in pq.read_table(train_file(folder, number), partitioning=None).to_pylist():
        for n, (index, time) in enumerate(zip(row[ITEM_ID], row[EVENT_TIME], strict=True)):
            item = raw[index - N_RESERVED]
            found.append(
                {
                    "event_id": f"{row[SESSION_ID]}/{n}",
                    "session_id": row[SESSION_ID],
                    "item_id": item,
                    "event_time": time.isoformat(),
                    "category": item % 3,
                    "price": item / 10,
                }
            )
    return sorted(found, key=lambda event: event["event_time"])


def with_other_clicks(windows, folder, number, hour=0):
    """Copy windows to a folder, where other items are clicked on a day from this hour on.

    Only the train sessions change: what is evaluated is in the files of other roles.
    """
    copied, dice = Path(shutil.copytree(windows, folder)), np.random.default_rng(0)

    def changed(table):
        rows = table[ITEM_ID].to_pylist()
        every = np.concatenate(rows)
        items = [
            [
                item if time.hour < hour else int(dice.choice(every))
                for item, time in zip(*each, strict=True)
            ]
            for each in zip(rows, table[EVENT_TIME].to_pylist(), strict=True)
        ]
        return replaced(table, ITEM_ID, items)

    rewrite(train_file(copied, number), changed)
    return copied


def train_file(folder, number):
    return folder / f"session_start_date={day(number)}-train.parquet"


def times_of(folder, number):
    """Return when each train session of a day clicks."""
    return pq.read_table(train_file(folder, number))[EVENT_TIME].to_pylist()
