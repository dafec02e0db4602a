"""Small logs, readable in the test that uses them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.config.loading import validated
from dayahead.config.machine import MachineConfig
from dayahead.config.windows import CALENDAR_LENGTHS, PreprocessConfig, WindowConfig
from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    ROW,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.files import write_parquet
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.manifest import ITEMS_FILE, EventsFile, ItemsRecord, RawManifest
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.time import microseconds
from dayahead.preprocess.stage import preprocess
from dayahead.windows.folder import WindowFolder


def instant(text: str) -> datetime:
    """`2026-01-01 08:30` or `2026-01-01T08:30:00.5` as an instant in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def events(rows: Sequence[Mapping[str, Any]], *, item_type: pa.DataType | None = None) -> pa.Table:
    """Build an event table; times may be text, rows are numbered in the order given.

    events([{"session_id": "a", "item_id": 1, "event_time": "2026-01-01 08:30"}, ...])
    """
    known = {
        SESSION_ID: pa.string(),
        USER_ID: pa.string(),
        ITEM_ID: item_type or pa.int64(),
        EVENT_TIME: TIMESTAMP,
        SESSION_START: TIMESTAMP,
        ROW: pa.int64(),
    }
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if known.get(name) == TIMESTAMP:
            values = [instant(value) if isinstance(value, str) else value for value in values]
        columns[name] = pa.array(values, known.get(name))
    columns.setdefault(ROW, pa.array(np.arange(len(rows))))
    return pa.table(columns)


def session(session_id: str, items: Sequence[Any], start: str, **more: Any) -> list[dict[str, Any]]:
    """Rows of one session, an event a minute: session("a", [1, 2, 3], "2026-01-01 08:30")."""
    first = instant(start).timestamp()
    times = [datetime.fromtimestamp(first + 60 * n, UTC) for n in range(len(items))]
    return [
        {SESSION_ID: session_id, ITEM_ID: item, EVENT_TIME: time, **more}
        for item, time in zip(items, times, strict=True)
    ]


def write_log(
    raw: Path,
    log: pa.Table | Sequence[pa.Table],
    *,
    log_end: str | None = None,
    parts: int = 1,
    span: tuple[str, str] | None = None,
    items: Sequence[pa.Table] = (),
) -> None:
    """Write an event table as `download` leaves it.

    A table is one source file, cut into `parts`; several are a source file each, and number their
    rows from 0. Events outside `span` are strays. `items` are the source files of a table of items.
    """
    raw.mkdir(parents=True, exist_ok=True)
    files = [log] if isinstance(log, pa.Table) else log
    written: list[EventsFile] = []
    first_row = 0
    for table in files:
        bounds = [len(table) * n // parts for n in range(parts + 1)]
        for begin, end in pairwise(bounds):
            part = table.slice(begin, end - begin)
            name = f"events-{len(written):05d}.parquet"
            write_parquet(raw / name, part)
            sha256 = sha256_of(raw / name)
            times = [time.isoformat() for time in sorted(part[EVENT_TIME].to_pylist())] or [""]
            written.append(EventsFile(name, len(part), sha256, times[0], times[-1], first_row))
        first_row += len(table)
    times = [time for table in files for time in table[EVENT_TIME].to_pylist()]
    end_of_log = instant(log_end) if log_end else max(times, default=instant("1970-01-01"))
    manifest = RawManifest(
        dataset="tiny",
        log_end=end_of_log,
        rows=first_row,
        events=first_row,
        dropped={},
        files=(),
        parts=tuple(written),
        span=(microseconds(instant(span[0])), microseconds(instant(span[1]))) if span else None,
        items=_items_record(raw, items) if items else None,
    )
    manifest.write(raw)


def _items_record(raw: Path, tables: Sequence[pa.Table]) -> ItemsRecord:
    parts = []
    for number, table in enumerate(tables):
        path = raw / ITEMS_FILE.format(number)
        write_parquet(path, table)
        parts.append(EventsFile(path.name, len(table), sha256_of(path), "", ""))
    n_rows = sum(map(len, tables))
    return ItemsRecord(rows=n_rows, dropped={}, files=(), parts=tuple(parts), quality=())


def dataset_config(
    *,
    features: Mapping[str, Any] | None = None,
    items: Mapping[str, Any] | None = None,
    columns: Mapping[str, Any] | None = None,
    split: Mapping[str, Any] | None = None,
    **sessions: Any,
) -> DatasetConfig:
    """A data set of int items with a session column and no user; keywords change the rules."""
    value = {
        "description": "tiny",
        "licence": "none",
        "source": {"urls": ["unused.csv"]},
        "columns": {
            "session_id": "session_id",
            "item_id": {"column": "item_id", "type": "int"},
            **(columns or {}),
        },
        "time": {"column": "event_time"},
        "sessions": {"repeats": {"rule": "keep", "scope": "session"}, **sessions},
        "features": features or {},
        "split": {"seed": 1, "train": [0, 1], "valid": [0, 0.5], "test": [0.5, 1], **(split or {})},
        "items": items,
    }
    return validated(DatasetConfig, value, "tiny.yaml")


def window_config(**changes: Any) -> WindowConfig:
    """Calendar days in UTC, no window too thin."""
    value = {
        "unit": "day",
        "length": 1,
        "origin": "calendar",
        "timezone": "UTC",
        "first": None,
        "last": None,
        "min_sessions": 1,
        "overrun": "cut",
        "grace": 0,
    }
    return validated(WindowConfig, {**value, **changes}, "params.yaml")


CALENDAR_WINDOWS = [
    {"unit": unit, "length": length}
    for unit, lengths in CALENDAR_LENGTHS.items()
    for length in lengths
]
"""All that calendar windows can be."""


def preprocess_config(**changes: Any) -> PreprocessConfig:
    """On the CPU, features fitted to the first window."""
    value = {"fit_windows": 1, "rebuild": False}
    return validated(PreprocessConfig, {**value, **changes}, "params.yaml")


def machine_config(**changes: Any) -> MachineConfig:
    """Threads of this process where work is small, a worker of 2 GiB otherwise."""
    value = {
        "workers": "auto",
        "memory_limit": "2GiB",
        "keep_fits": 1,
        "max_restarts": 0,
        "strict": False,
    }
    return validated(MachineConfig, {**value, **changes}, "params.yaml")


def preprocessed(
    folder: Path, dataset: DatasetConfig, window: WindowConfig | None = None
) -> WindowFolder:
    """Preprocess `raw` of a folder to its `windows`."""
    raw, windows = folder / "raw", folder / "windows"
    window = window or window_config()
    preprocess(raw, windows, dataset, window, preprocess_config(), machine_config())
    return WindowFolder(windows)


def random_log(seed: int, days: int, sessions_per_day: int = 12, n_items: int = 15) -> pa.Table:
    """A messy log: repeats, equal times, nulls, sessions over midnight, several ones per user.

    A longer log begins with the shorter one: each day has a stream of its own.
    """
    rows: list[dict[str, Any]] = []
    midnight = instant("2026-01-01").timestamp()
    for day in range(days):
        random = np.random.default_rng([seed, day])
        for number in range(sessions_per_day):
            begin = midnight + 86_400 * day + float(random.uniform(0, 86_400))
            gaps = random.choice([0, 5, 60, 3_000], size=int(random.integers(1, 9)))
            rows += [
                {
                    SESSION_ID: f"s{day}-{number}",
                    USER_ID: None if number % 5 == 0 else f"u{number % 4}",
                    ITEM_ID: int(random.integers(day, day + n_items)),
                    EVENT_TIME: datetime.fromtimestamp(round(second), UTC),
                    "colour": random.choice(["red", "green", "blue", None]),
                    "shop": [None, 2**53 + 1, 2**53 + 2][int(random.integers(3))],
                    "price": [None, -1.0, 0.0, float(random.uniform(1, 99))][
                        int(random.integers(4))
                    ],
                }
                for second in begin + np.cumsum(gaps)
            ]
    table = events(rows)
    return table.set_column(
        table.column_names.index("shop"), "shop", table["shop"].cast(pa.int64())
    )


def days_of(log: pa.Table) -> list[pa.Table]:
    """The rows of each day, as an export at midnight has them: a source file each."""
    days = pc.floor_temporal(log[EVENT_TIME], unit="day")
    files = []
    for day in sorted(set(days.to_pylist())):
        rows = log.filter(pc.equal(days, pa.scalar(day, days.type)))
        numbers = pa.array(range(len(rows)), pa.int64())
        files.append(rows.set_column(rows.column_names.index(ROW), ROW, numbers))
    return files


RANDOM_LOG_FEATURES = {
    "colour": {"kind": "categorical", "column": "colour"},
    "shop": {"kind": "categorical", "column": "shop", "type": "int"},
    "price": {"kind": "log_number", "column": "price"},
    "hour": {"kind": "hour"},
    "weekday": {"kind": "weekday"},
    "age": {"kind": "item_age"},
}


TWO_DAYS = events(
    session("b", [30, 10], "2026-01-01 09:00", colour="red", price=2.0)
    + session("a", [10, 20, 10], "2026-01-01 09:00", colour=None, price=4.0)
    + session("c", [40, 30], "2026-01-02 00:00", colour="blue", price=3.0)
    + session("d", [40], "2026-01-02 05:00", colour="blue", price=3.0)
)
TWO_DAYS_FEATURES = {
    "colour": {"kind": "categorical", "column": "colour"},
    "price": {"kind": "number", "column": "price"},
    "hour": {"kind": "hour"},
    "age": {"kind": "item_age"},
}
