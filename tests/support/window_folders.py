"""A folder of windows written by hand, for tests that need one without preprocessing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, SESSION_ID, SESSION_START, TIMESTAMP, USER_ID
from dayahead.core.files import read_json, write_json, write_parquet
from dayahead.windows.folder import (
    MANIFEST,
    STATISTICS,
    WindowFolder,
    vocabulary_path,
    window_path,
)
from dayahead.windows.metadata import (
    FeatureStatistics,
    SessionRules,
    Statistics,
    WindowEntry,
    WindowsManifest,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
MEAN, STD = 1.0, 0.5
HOUR, STEP = timedelta(hours=1), timedelta(seconds=10)
"""From a past's first event to the session's; from one event of `raw_events` to the next."""
FEATURES = {
    "category": FeatureStatistics(kind="categorical", columns=["category"], type="int"),
    "price": FeatureStatistics(kind="log_number", columns=["price"], mean=MEAN, std=STD),
}

Days = list[list[list[int]]]
"""Sessions per day, each a list of raw item ids."""


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Content of every file under a folder, by its path there."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def write_window_folder(
    folder: Path,
    days: Days,
    *,
    max_length: int = 20,
    features: bool = False,
    fitted_on: int = 1,
    category_days: Sequence[int] = (0, 0, 0),
    listed: Mapping[int, Sequence[int]] | None = None,
) -> Path:
    """Write a folder as `preprocess` leaves it; session i of day d has the id `d-00000i`.

    Every session trains; those with even numbers are valid, the others test. With `features` an
    item has a category (its raw id modulo 3) and a price (a tenth of its raw id); the categories
    are first seen on `category_days`. Items that are `listed` on a day are known from then on.
    """
    vocabulary = Vocabulary(days, listed)
    for number, sessions in enumerate(days):
        table = session_table(number, sessions, vocabulary, features=features)
        numbers = np.arange(len(sessions))
        for role, rows in (
            ("train", numbers),
            ("valid", numbers[numbers % 2 == 0]),
            ("test", numbers[numbers % 2 == 1]),
        ):
            write_parquet(window_path(folder, "day", day(number), role), table.take(rows))
    _write_vocabulary(folder, ITEM_ID, vocabulary.index, vocabulary.first_windows)
    if features:
        _write_vocabulary(folder, "category", range(3), [day(each) for each in category_days])
    entries = [_entry(number, sessions) for number, sessions in enumerate(days)]
    n_sessions = sum(map(len, days))
    manifest = WindowsManifest(
        unit="day",
        log_end=entries[-1].end if entries else "",
        sessions_read=n_sessions,
        sessions_kept=n_sessions,
        steps={},
        windows=entries,
    )
    write_json(folder / MANIFEST, asdict(manifest))
    fitted_windows = [day(number) for number in range(fitted_on)]
    statistics = tiny_statistics(
        FEATURES if features else (), max_length=max_length, fitted_on=fitted_windows
    )
    write_json(folder / STATISTICS, statistics.as_json())
    return folder


def tiny_statistics(
    features: Iterable[str] = (), *, max_length: int = 20, fitted_on: Sequence[str] = ()
) -> Statistics:
    """Statistics of some of FEATURES."""
    rules = SessionRules(
        repeats="keep", min_length=2, max_length=max_length, truncate="first", past_max_length=0
    )
    return Statistics(
        unit="day",
        timezone="UTC",
        item_type="int",
        sessions=rules,
        fitted_on=list(fitted_on),
        features={name: FEATURES[name] for name in features},
    )


class Vocabulary:
    """Catalogue index and first window of every raw item, in order of first sight."""

    def __init__(self, days: Days, listed: Mapping[int, Sequence[int]] | None = None) -> None:
        self.index: dict[int, int] = {}
        self.first_windows: list[str] = []
        for number, sessions in enumerate(days):
            for item in chain(chain.from_iterable(sessions), (listed or {}).get(number, ())):
                if item not in self.index:
                    self.index[item] = len(self.index) + 2
                    self.first_windows.append(day(number))


def day(number: int) -> str:
    """Name of the window `number`, 0 for the first."""
    return (START + timedelta(days=number)).date().isoformat()


def raw_events(items: list[int], number: int = 0, row: int = 0) -> pa.Table:
    """Events of such a folder, of session `row` of day `number`: raw ids, times, raw features."""
    start = START + timedelta(days=number, seconds=row)
    times = [start + timedelta(seconds=10 * n) for n in range(len(items))]
    return pa.table(
        {
            ITEM_ID: pa.array(items, pa.int64()),
            EVENT_TIME: pa.array(times, TIMESTAMP),
            "category": pa.array([item % 3 for item in items], pa.int64()),
            "price": pa.array([item / 10 for item in items], pa.float64()),
        }
    )


def add_pasts(folder: Path, pasts: Days, longest: int) -> None:
    """Give session i of day d the past pasts[d][i] of raw items, from an HOUR before it on."""
    vocabulary = WindowFolder(folder).vocabulary(ITEM_ID)
    index = dict(zip(vocabulary["value"].to_pylist(), vocabulary["index"].to_pylist(), strict=True))
    for path in folder.glob("session_start*.parquet"):
        table = pq.read_table(path, partitioning=None)
        raw = [pasts[int(n[0])][int(n[2:])] for n in table[SESSION_ID].to_pylist()]
        items = [[index[item] for item in past] for past in raw]
        categories = [[item % 3 + 2 for item in past] for past in raw]
        table = table.append_column("bef_item_id", pa.array(items, pa.list_(pa.int32())))
        table = table.append_column("bef_category", pa.array(categories, pa.list_(pa.int32())))
        starts = [first[0] - HOUR for first in table[EVENT_TIME].to_pylist()]
        steps = [range(len(past)) for past in raw]
        times = [[t + n * STEP for n in each] for t, each in zip(starts, steps, strict=True)]
        times = pa.array(times, table.schema.field(EVENT_TIME).type)
        table = table.append_column("bef_event_time", times)
        pq.write_table(table, path)
    statistics = read_json(folder / STATISTICS)
    statistics["sessions"]["past_max_length"] = longest
    write_json(folder / STATISTICS, statistics)


def events_before(items: list[int], number: int = 0, row: int = 0) -> pa.Table:
    """Events of such a past: an hour before those of `raw_events`."""
    events = raw_events(items, number, row)
    times = pc.subtract(events[EVENT_TIME], pa.scalar(HOUR))
    return events.set_column(1, EVENT_TIME, times.cast(events[EVENT_TIME].type))


def markov_days(n_days: int, sessions_per_day: int, n_items: int, seed: int = 0) -> Days:
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


def session_table(
    number: int, sessions: list[list[int]], vocabulary: Vocabulary, *, features: bool
) -> pa.Table:
    """Sessions of day `number` as a window file holds them, a second apart."""
    starts = [START + timedelta(days=number, seconds=i) for i in range(len(sessions))]
    times = [
        [begin + timedelta(seconds=10 * i) for i in range(len(session))]
        for begin, session in zip(starts, sessions, strict=True)
    ]
    items = [[vocabulary.index[item] for item in session] for session in sessions]
    columns: dict[str, Any] = {
        SESSION_ID: pa.array([f"{number}-{i:06d}" for i in range(len(sessions))]),
        USER_ID: pa.nulls(len(sessions), pa.string()),
        SESSION_START: pa.array(starts, TIMESTAMP),
        ITEM_ID: pa.array(items, pa.list_(pa.int32())),
        EVENT_TIME: pa.array(times, pa.list_(TIMESTAMP)),
    }
    if features:
        categories = [[item % 3 + 2 for item in session] for session in sessions]
        prices = [(np.log1p(np.array(session) / 10) - MEAN) / STD for session in sessions]
        columns["category"] = pa.array(categories, pa.list_(pa.int32()))
        columns["price"] = pa.array(prices, pa.list_(pa.float32()))
    return pa.table(columns)


def _entry(number: int, sessions: list[list[int]]) -> WindowEntry:
    n_even = (len(sessions) + 1) // 2
    return WindowEntry(
        window=day(number),
        start=(START + timedelta(days=number)).isoformat(),
        end=(START + timedelta(days=number + 1)).isoformat(),
        sessions=len(sessions),
        events=sum(map(len, sessions)),
        state="kept",
        why=None,
        roles={"train": len(sessions), "valid": n_even, "test": len(sessions) - n_even},
        overrun_events=0,
    )


def vocabulary_table(
    values: pa.Array, first_windows: Sequence[str], first_time: datetime = START
) -> pa.Table:
    """Values as a vocabulary holds them, each with one event."""
    n_values = len(values)
    return pa.table(
        {
            "index": pa.array(range(2, n_values + 2), pa.int32()),
            "value": values,
            "first_window": pa.array(first_windows, pa.string()),
            "first_time": pa.array([first_time] * n_values, TIMESTAMP),
            "events": pa.array([1] * n_values, pa.int64()),
        }
    )


def _write_vocabulary(
    folder: Path, column: str, values: Iterable[int], first_windows: list[str]
) -> None:
    table = vocabulary_table(pa.array(list(values), pa.int64()), first_windows)
    write_parquet(vocabulary_path(folder, column), table)
