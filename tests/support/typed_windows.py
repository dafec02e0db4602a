"""Types of events in a folder of windows written by hand."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TYPE, ITEM_ID, PAST_PREFIX, SESSION_ID
from dayahead.core.files import read_json, write_json, write_parquet
from dayahead.windows.folder import STATISTICS, vocabulary_path
from support.window_folders import day, vocabulary_table

TYPES = ("view", "cart", "purchase")
TypeOf = Callable[[str, int], str]
"""From the id of a session and the position of an event in it to the event's type."""


def drawn_type(session: str, step: int) -> str:
    """One of the types, at random but for good: half of the events are views."""
    draw = hashlib.sha256(f"{session}:{step}".encode()).digest()[0]
    return TYPES[0 if draw < 128 else 1 + draw % 2]


def given_types(**letters: str) -> TypeOf:
    """Types by session number, as `given_types(s0="vcp")` for session 0 of any day."""
    names = {name[0]: name for name in TYPES}
    return lambda session, step: names[letters[f"s{int(session[2:])}"][step]]


def add_types(folder: Path, type_of: TypeOf = drawn_type, names: tuple[str, ...] = TYPES) -> Path:
    """Give every event a type, those of a past the type view; `names` are the vocabulary."""
    for path in folder.glob("session_start*.parquet"):
        table = pq.read_table(path, partitioning=None)
        ids = table[SESSION_ID].to_pylist()
        rows = zip(ids, table[ITEM_ID].to_pylist(), strict=True)
        types = [[names.index(type_of(s, n)) + 2 for n in range(len(items))] for s, items in rows]
        table = table.append_column(EVENT_TYPE, pa.array(types, pa.list_(pa.int32())))
        if (past := PAST_PREFIX + ITEM_ID) in table.column_names:
            views = [[2] * len(items) for items in table[past].to_pylist()]
            column = pa.array(views, pa.list_(pa.int32()))
            table = table.append_column(PAST_PREFIX + EVENT_TYPE, column)
        pq.write_table(table, path)
    vocabulary = vocabulary_table(pa.array(names), [day(0)] * len(names))
    write_parquet(vocabulary_path(folder, EVENT_TYPE), vocabulary)
    statistics = read_json(folder / STATISTICS)
    statistics["features"][EVENT_TYPE] = {
        "kind": "categorical",
        "columns": [EVENT_TYPE],
        "type": "string",
    }
    statistics["event_type"] = EVENT_TYPE
    write_json(folder / STATISTICS, statistics)
    return folder
