"""A folder of windows written by hand, for tests that need one without preprocessing."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from dayahead.columns import TIMESTAMP
from dayahead.data.windows import vocabulary_path, window_path
from dayahead.files import write_json, write_parquet

START = datetime(2026, 1, 1, tzinfo=UTC)


def write_window_folder(
    folder: Path, days: list[list[list[int]]], max_length: int = 20, category: bool = False
) -> Path:
    """Write sessions per day, each a list of raw item ids; every session has every role."""
    index: dict[int, int] = {}
    first_window: list[str] = []
    entries = []
    for number, sessions in enumerate(days):
        name = (START + timedelta(days=number)).date().isoformat()
        for item in (item for session in sessions for item in session):
            if item not in index:
                index[item] = len(index) + 2
                first_window.append(name)
        table = _table(number, [[index[item] for item in session] for session in sessions])
        if category:
            items = table["item_id"].combine_chunks()
            groups = pa.array(items.flatten().to_numpy() % 3 + 2, pa.int32())
            numbers = pa.array(items.flatten().to_numpy() / 10, pa.float32())
            table = table.append_column("category", pa.ListArray.from_arrays(items.offsets, groups))
            table = table.append_column("price", pa.ListArray.from_arrays(items.offsets, numbers))
        for role in ("train", "valid", "test"):
            write_parquet(window_path(folder, "day", name, role), table)
        entries.append(
            {
                "window": name,
                "start": (START + timedelta(days=number)).isoformat(),
                "end": (START + timedelta(days=number + 1)).isoformat(),
                "sessions": len(sessions),
                "events": sum(map(len, sessions)),
                "state": "kept",
                "why": None,
                "roles": dict.fromkeys(("train", "valid", "test"), len(sessions)),
                "overrun_events": 0,
            }
        )
    _write_vocabulary(folder, "item_id", list(index), first_window)
    features = {}
    if category:
        _write_vocabulary(folder, "category", [2, 3, 4], [entries[0]["window"]] * 3)
        features = {
            "category": {"kind": "categorical", "columns": ["category"], "type": "int"},
            "price": {"kind": "log_number", "columns": ["price"], "mean": 0.0, "std": 1.0},
        }
    write_json(folder / "windows.json", {"unit": "day", "steps": {}, "windows": entries})
    write_json(
        folder / "statistics.json",
        {
            "unit": "day",
            "timezone": "UTC",
            "item_type": "int",
            "sessions": {
                "max_length": max_length,
                "truncate": "first",
                "repeats": "keep",
            },
            "fitted_on": [entries[0]["window"]],
            "features": features,
        },
    )
    return folder


def markov_days(
    n_days: int, sessions_per_day: int, n_items: int, seed: int = 0
) -> list[list[list[int]]]:
    """Sessions in which every item has two likely successors."""
    draw = np.random.default_rng(seed)
    successors = draw.integers(0, n_items, (n_items, 2))
    days = []
    for _ in range(n_days):
        sessions = []
        for _ in range(sessions_per_day):
            session = [int(draw.integers(n_items))]
            for _ in range(int(draw.integers(1, 9))):
                session.append(int(successors[session[-1], draw.integers(2)]))
            sessions.append(session)
        days.append(sessions)
    return days


def _table(number: int, sessions: list[list[int]]) -> pa.Table:
    start = START + timedelta(days=number)
    starts = [start + timedelta(seconds=i) for i in range(len(sessions))]
    times = [
        [begin + timedelta(seconds=10 * i) for i in range(len(session))]
        for begin, session in zip(starts, sessions, strict=True)
    ]
    return pa.table(
        {
            "session_id": pa.array([f"{number}-{i:06d}" for i in range(len(sessions))]),
            "user_id": pa.nulls(len(sessions), pa.string()),
            "session_start": pa.array(starts, TIMESTAMP),
            "item_id": pa.array(sessions, pa.list_(pa.int32())),
            "event_time": pa.array(times, pa.list_(TIMESTAMP)),
        }
    )


def _write_vocabulary(
    folder: Path, column: str, values: list[int], first_window: list[str]
) -> None:
    table = pa.table(
        {
            "index": pa.array(range(2, len(values) + 2), pa.int32()),
            "value": pa.array(values, pa.int64()),
            "first_window": first_window,
            "first_time": pa.array([START] * len(values), TIMESTAMP),
            "events": pa.array([1] * len(values), pa.int64()),
        }
    )
    write_parquet(vocabulary_path(folder, column), table)
