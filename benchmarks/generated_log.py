"""A random log of the size and shape of REES46's, as `download` writes it to data/raw.

31 days of 297,000 sessions are the October of the original: 42 M events, 4.6 per session, 3 M
users, 167,000 items by Zipf's law, UUIDs as session ids, a quarter of all clicks on the item
seen just before, one session in a thousand continued days later.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import DAY, EVENT_TIME, ROW, TIMESTAMP
from dayahead.core.files import write_json
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.schema import DatasetConfig, load_dataset

DAYS = 31
SESSIONS_PER_DAY = 297_000
EVENTS_PER_SESSION = 4.6
START = datetime(2019, 10, 1, tzinfo=UTC)
PART = 1 << 22
"""Events per file, as `download` cuts a month's file."""
ROW_GROUP = 1 << 17
_N_ITEMS, _N_CATEGORIES, _N_BRANDS = 166_794, 624, 3_444
_NO_CODE, _NO_BRAND = 0.32, 0.14
"""Share of the categories without a code, of the items without a brand."""
_REPEATS, _RESUMES = 0.25, 0.001
"""Microseconds."""
_FIRST_ITEM, _FIRST_USER, _FIRST_CATEGORY = 1_000_978, 512_000_000, 2_053_013_551_000_000_000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """Size of a log; a longer one begins with the shorter one, byte for byte."""

    days: int = DAYS
    sessions_per_day: int = SESSIONS_PER_DAY
    seed: int = 1

    @property
    def n_users(self) -> int:
        """A user has three sessions a month."""
        return max(self.sessions_per_day * DAYS // 3, 1)

    @cached_property
    def items(self) -> pa.Table:
        """The items' columns of the original, which do not change over time."""
        rng = np.random.default_rng(self.seed)
        category = rng.integers(0, _N_CATEGORIES, _N_ITEMS)
        codes = [f"department{n % 13}.group{n % 57}.kind{n}" for n in range(_N_CATEGORIES)]
        codeless = (rng.random(_N_CATEGORIES) < _NO_CODE)[category]
        brandless = rng.random(_N_ITEMS) < _NO_BRAND
        brands = pa.array([f"brand-{n}" for n in range(_N_BRANDS)])
        brand = np.minimum(rng.zipf(1.3, _N_ITEMS) - 1, _N_BRANDS - 1)
        level = rng.normal(4.5, 0.8, _N_CATEGORIES)[category]
        return pa.table(
            {
                "product_id": pa.array(_FIRST_ITEM + 37 * rng.permutation(_N_ITEMS)),
                "category_id": pa.array(_FIRST_CATEGORY + 9_973 * category),
                "category_code": pa.array(codes).take(pa.array(category, mask=codeless)),
                "brand": brands.take(pa.array(brand, mask=brandless)),
                "price": pa.array(np.round(np.exp(rng.normal(level, 0.5)), 2)),
            }
        )

    @cached_property
    def popularity(self) -> NDArray[np.float64]:
        """Cumulative shares of the clicks, by item."""
        cumulative = np.cumsum(1 / np.arange(1, _N_ITEMS + 1))
        return np.asarray(cumulative / cumulative[-1])


def shape_of(events: int, days: int) -> Shape:
    """Return the shape of a log of about this many events."""
    return Shape(days, round(events / days / EVENTS_PER_SESSION))


def daily_events(shape: Shape) -> Iterator[pa.Table]:
    """Yield each day's events in order of time: the event table without row numbers."""
    later = None
    for day in range(shape.days):
        started = _random_sessions(shape, day)
        known = started if later is None else pa.concat_tables([later, started])
        is_over = pc.less(known["time"], (day + 1) * DAY)
        later = known.filter(pc.invert(is_over))
        yield _event_table(shape, known.filter(is_over))


def write_log(raw: Path, files: Iterable[Iterable[pa.Table]], end: datetime) -> int:
    """Write source files, each an iterable of tables, as parts with their manifest.

    Returns:
        The number of events.
    """
    raw.mkdir(parents=True, exist_ok=True)
    parts: list[dict[str, Any]] = []
    first_row = 0
    for tables in files:
        for numbered in _numbered(tables):
            name = f"events-{len(parts):05d}.parquet"
            pq.write_table(numbered, raw / name, compression="zstd", row_group_size=ROW_GROUP)
            parts.append(_part(raw / name, numbered, first_row))
        first_row = sum(part["events"] for part in parts)
    write_json(
        raw / "manifest.json",
        {
            "dataset": "rees46",
            "log_end": end.isoformat(),
            "rows": first_row,
            "events": first_row,
            "dropped": {},
            "files": [],
            "parts": parts,
        },
    )
    return first_row


def write_month(raw: Path, shape: Shape) -> int:
    """Write the log as one source file, like the original; return the number of events."""
    return write_log(raw, [daily_events(shape)], START + timedelta(days=shape.days))


def write_days(raw: Path, shape: Shape) -> int:
    """Write the log as one source file per day; return the number of events."""
    days = ([events] for events in daily_events(shape))
    return write_log(raw, days, START + timedelta(days=shape.days))


def _part(path: Path, table: pa.Table, first_row: int) -> dict[str, Any]:
    bounds = pc.min_max(table[EVENT_TIME]).as_py()
    return {
        "file": path.name,
        "events": len(table),
        "first_event": bounds["min"].isoformat(),
        "last_event": bounds["max"].isoformat(),
        "sha256": sha256_of(path),
        "first_row": first_row,
    }


def _numbered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Number the rows of one file and cut it into parts."""
    pending: list[pa.Table] = []
    n_rows = 0
    for table in tables:
        rows = pa.array(np.arange(n_rows, n_rows + len(table)))
        n_rows += len(table)
        pending.append(table.append_column(ROW, rows))
        while sum(map(len, pending)) >= PART:
            joined = pa.concat_tables(pending)
            yield joined.slice(0, PART)
            pending = [joined.slice(PART)]
    if sum(map(len, pending)):
        yield pa.concat_tables(pending)


def _random_sessions(shape: Shape, day: int) -> pa.Table:
    """Return the sessions that start on a day: session, user, item's row, time, event type."""
    rng = np.random.default_rng([shape.seed, day])
    n = shape.sessions_per_day
    lengths = np.minimum(1 + rng.lognormal(1.05, 0.85, n).astype(np.int64), 500)
    session = np.repeat(np.arange(n), lengths)
    is_first = np.diff(session, prepend=-1) > 0
    items = np.searchsorted(shape.popularity, rng.random(len(session)))
    is_repeat = (rng.random(len(session)) < _REPEATS) & ~is_first
    items = items[np.maximum.accumulate(np.where(is_repeat, 0, np.arange(len(session))))]
    gaps = rng.lognormal(np.log(45), 1.2, len(session)) * 1_000_000
    gaps += (rng.random(len(session)) < _RESUMES / EVENTS_PER_SESSION) * rng.exponential(3 * DAY)
    since = np.cumsum(np.where(is_first, 0, gaps))
    starts = day * DAY + rng.beta(2.5, 2, n) * DAY
    times = (starts - since[is_first])[session] + since
    users = _FIRST_USER + rng.integers(0, shape.n_users, n)
    types = np.searchsorted([0.96, 0.982], rng.random(len(session)), side="right")
    return pa.table(
        {
            "session": _uuids(rng, n).take(session),
            "user": pa.array(users).cast(pa.string()).take(session),
            "item": pa.array(items.astype(np.int32)),
            "time": pa.array(times.astype(np.int64) // 1_000_000 * 1_000_000),  # whole seconds
            "type": pa.array(types.astype(np.int8)),
        }
    )


def _uuids(rng: np.random.Generator, n: int) -> pa.Array:
    """Return random ids of 36 characters."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    text = np.full((n, 36), ord("-"), dtype=np.uint8)
    columns = [column for column in range(36) if column not in (8, 13, 18, 23)]
    text[:, columns] = digits[rng.integers(0, 16, (n, len(columns)), dtype=np.uint8)]
    offsets = pa.py_buffer(np.arange(0, 36 * (n + 1), 36, dtype=np.int32))
    return pa.StringArray.from_buffers(n, offsets, pa.py_buffer(text))


def _event_table(shape: Shape, sessions: pa.Table) -> pa.Table:
    """Return the event table: the columns that the data set's file names."""
    sessions = sessions.sort_by("time")
    items = shape.items.take(sessions["item"])
    begin = int(START.timestamp()) * 1_000_000
    types = pa.array(["view", "cart", "purchase"])
    source = items.append_column("user_session", sessions["session"])
    source = source.append_column("user_id", sessions["user"])
    source = source.append_column("event_time", pc.add(sessions["time"], begin).cast(TIMESTAMP))
    source = source.append_column("event_type", types.take(sessions["type"].combine_chunks()))
    columns = rees46().event_columns()
    return pa.table({name: source[column] for name, (column,) in columns.items()}).combine_chunks()


@cache
def rees46() -> DatasetConfig:
    """Return the data set of the log."""
    return load_dataset("rees46", Path(__file__).parents[1] / "datasets")
