"""What Dask's workers do: each function reads files, writes files and returns little.

The data set's files and settings travel in a `Job`; tables never pass through the scheduler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.columns import (
    EVENT_TIME,
    ITEM_ID,
    ROLES,
    ROW,
    SESSION_ID,
    SESSION_START,
    USER_ID,
    WINDOW,
)
from dayahead.config.dataset import DatasetConfig
from dayahead.config.params import WindowConfig
from dayahead.data.calendar import Calendar
from dayahead.data.cluster import Device
from dayahead.data.event_log import event_columns
from dayahead.data.features import Statistics, encode, listed
from dayahead.data.schema import window_schema
from dayahead.data.scratch import buckets, gather, scatter
from dayahead.data.sessions import Rules, Tally, by_user, cut_sessions, ints
from dayahead.data.vocabulary import occurrences
from dayahead.data.windows import vocabulary_path, window_path
from dayahead.files import write_parquet


@dataclass(frozen=True)
class Job:
    """What every task knows."""

    dataset: DatasetConfig
    window: WindowConfig
    n_buckets: int
    output: Path
    device: Device

    @property
    def categorical(self) -> list[str]:
        """Columns with a vocabulary."""
        features = self.dataset.features.items()
        return [ITEM_ID, *(name for name, feature in features if feature.kind == "categorical")]

    @property
    def goes_by_user(self) -> bool:
        """Whether a step needs all events of a user together."""
        sessions = self.dataset.sessions
        return sessions.gap_minutes is not None or sessions.repeats.scope == "user"


@dataclass(frozen=True)
class Spread:
    """What a part of the log holds, seen while it was scattered."""

    path: Path
    without_user: int
    """Events left out because no user could give them a session."""
    starts: tuple[int, int] | None
    """Bounds of its sessions' starts, microseconds, UTC; null: no events."""


def spread(job: Job, part: Path, path: Path) -> Spread:
    """Scatter a part of the event table by user, where a step needs users, else by session."""
    events = pq.read_table(part, columns=event_columns(job.dataset))
    n_read = len(events)
    if job.dataset.sessions.gap_minutes is not None:
        events = events.filter(events[USER_ID].is_valid())
    key = USER_ID if job.goes_by_user else SESSION_ID
    scatter(events, buckets(events[key], job.n_buckets), path)
    starts = ints(
        events[EVENT_TIME if job.dataset.columns.session_start is None else SESSION_START]
    )
    bounds = (int(starts.min()), int(starts.max())) if len(starts) else None
    return Spread(path, n_read - len(events), bounds)


def sort_users(job: Job, spreads: Sequence[Path], bucket: int, path: Path) -> Path:
    """Do a bucket of users, and scatter their events by session."""
    events = by_user(gather(spreads, bucket), job.dataset.sessions)
    scatter(events, buckets(events[SESSION_ID], job.n_buckets), path)
    return path


def sort_sessions(
    job: Job, spreads: Sequence[Path], bucket: int, calendar: Calendar, path: Path
) -> tuple[Path, Tally]:
    """Take a bucket of sessions through the steps, and scatter what is left by window."""
    rules = Rules(job.dataset.sessions, job.window.overrun, job.dataset.split, calendar)
    events, tally = cut_sessions(gather(spreads, bucket), rules)
    scatter(events, ints(events[WINDOW]), path)
    return path, tally


def collect_window(
    job: Job, spreads: Sequence[Path], position: int, path: Path
) -> dict[str, pa.Table]:
    """Bring a window's events into the order of its files; list what its vocabularies need.

    The order, (session start, session id, event time, row), is the same however the log was cut
    into parts and buckets, and all that follows comes from it.
    """
    keys = [SESSION_START, SESSION_ID, EVENT_TIME, ROW]
    events = gather(spreads, position).sort_by([(key, "ascending") for key in keys])
    pq.write_table(events, path, compression="lz4")
    in_time = events.select([*job.categorical, EVENT_TIME, ROW]).sort_by(
        [(EVENT_TIME, "ascending"), (ROW, "ascending")]
    )
    return {column: occurrences(in_time, column) for column in job.categorical}


def write_window(job: Job, name: str, path: Path, statistics: Statistics) -> None:
    """Encode a window and write one file per role."""
    vocabularies = {
        column: pq.read_table(vocabulary_path(job.output, column)) for column in job.categorical
    }
    events = pq.read_table(path)
    encoded = encode(events, statistics, vocabularies, job.device)
    encoded = encoded.append_column(EVENT_TIME, events[EVENT_TIME])
    ids = events[SESSION_ID].combine_chunks()
    first = np.flatnonzero(np.append(True, pc.not_equal(ids[1:], ids[:-1]).to_numpy(False)))
    table = listed(encoded, first)
    for column in (SESSION_ID, USER_ID, SESSION_START):
        table = table.append_column(column, events[column].take(first))
    schema = window_schema(statistics)
    table = table.select(schema.names).cast(schema)
    for role in ROLES:
        sessions = table.filter(events[role].take(first)).combine_chunks()
        write_parquet(window_path(job.output, job.window.unit, name, role), sessions)
