"""What Dask's workers do: each function reads files, writes files and returns little.

The data set's files and settings travel in a `Job`; tables never pass through the scheduler.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.config.params import WindowConfig
from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    PAST_PREFIX,
    ROLES,
    ROW,
    SESSION_ID,
    SESSION_START,
    USER_ID,
    WINDOW,
)
from dayahead.core.files import write_parquet
from dayahead.core.types import Device
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import Ints, codes_of, ints, is_new
from dayahead.features.vocabulary import count_values
from dayahead.features.workflow import encode_lists
from dayahead.preprocess.calendar import Calendar
from dayahead.preprocess.event_log import Piece, past_columns
from dayahead.preprocess.lookups import recall, remember
from dayahead.preprocess.schema import window_schema
from dayahead.preprocess.sessions import NEVER, Rules, cut_sessions
from dayahead.preprocess.shuffle import Keys, buckets, gather, hashes_of, scatter
from dayahead.preprocess.tally import Tally
from dayahead.preprocess.users import UserRules, by_user
from dayahead.windows.folder import vocabulary_path, window_path
from dayahead.windows.metadata import Statistics

_START = "start"


@dataclass(frozen=True)
class Job:
    """What every task knows."""

    dataset: DatasetConfig
    window: WindowConfig
    n_buckets: int
    output: Path
    device: Device
    memory: Mapping[str, Sequence[Path]]
    """Files of what earlier runs remember, by the key that finds it: user_id, session_id."""

    @property
    def categorical(self) -> list[str]:
        """Columns with a vocabulary."""
        features = self.dataset.features.items()
        return [ITEM_ID, *(name for name, feature in features if feature.kind == "categorical")]

    @property
    def goes_by_user(self) -> bool:
        """Whether a step needs all events of a user together."""
        sessions = self.dataset.sessions
        by_gap, past = sessions.gap_minutes is not None, sessions.past_max_length > 0
        return by_gap or past or sessions.repeats.scope == "user"


@dataclass(frozen=True)
class Spread:
    """What a piece of the log holds, seen while it was scattered."""

    path: Path
    without_user: int
    """Events left out because no user could give them a session."""
    starts: tuple[int, int] | None
    """Bounds of its sessions' starts, microseconds, UTC; null: no events."""


@dataclass(frozen=True)
class Edges:
    """Where what earlier runs wrote ends, and what this one writes: places in the calendar."""

    calendar: Calendar
    begin: int
    """Start of the log's first session, microseconds, UTC."""
    n_written: int
    n_closed: int


@dataclass(frozen=True)
class SortedUsers:
    """What a bucket of users came to."""

    path: Path
    """Events, by session."""
    remembered: Path
    """Events that a later run may look back at."""


def spread(job: Job, piece: Piece, n_rows: int, path: Path) -> Spread:
    """Scatter a piece of the log by user, where a step needs users, else by session."""
    without_user = 0
    bounds: list[int] = []

    def keyed() -> Iterator[tuple[pa.Table, Keys]]:
        nonlocal without_user
        for events in piece.tables(job.dataset.event_schema().names, n_rows):
            n_read = len(events)
            if job.dataset.sessions.gap_minutes is not None:
                events = events.filter(events[USER_ID].is_valid())
            without_user += n_read - len(events)
            starts = ints(
                events[EVENT_TIME if job.dataset.columns.session_start is None else SESSION_START]
            )
            bounds.extend([int(starts.min()), int(starts.max())] if len(starts) else [])
            key = USER_ID if job.goes_by_user else SESSION_ID
            yield events, buckets(events[key], job.n_buckets)

    scatter(keyed(), path)
    return Spread(path, without_user, (min(bounds), max(bounds)) if bounds else None)


def sort_users(
    job: Job, spreads: Sequence[Path], bucket: int, edges: Edges, path: Path
) -> SortedUsers:
    """Do a bucket of users, and scatter their events by session; remember what comes after."""
    events = gather(spreads, bucket)
    users = pc.unique(events[USER_ID].combine_chunks())
    settled, _ = recall(job.memory.get(USER_ID, ()), hashes_of(users))
    events = pa.concat_tables([events, *settled], promote_options="default")
    edge = edges.calendar.edges
    rules = UserRules(
        job.dataset.sessions,
        tuple(past_columns(job.dataset)),
        written=int(edge[edges.n_written]),
        edge=int(edge[edges.n_closed]),
    )
    events, memory = by_user(events, rules)
    scatter([(events, buckets(events[SESSION_ID], job.n_buckets))], path)
    remembered = path.with_suffix(".users")
    remember(remembered, hashes_of(memory[USER_ID]), memory)
    return SortedUsers(path, remembered)


@dataclass(frozen=True)
class SortedSessions:
    """What a bucket of sessions came to."""

    path: Path
    """Events kept, by window."""
    carried: Path
    """Events that a later run needs again."""
    remembered: Path
    """Starts of the sessions whose windows close with this run."""
    tally: Tally


def sort_sessions(
    job: Job, spreads: Sequence[Path], bucket: int, edges: Edges, path: Path
) -> SortedSessions:
    """Take a bucket of sessions through the steps, and scatter what is left by window."""

    def known(ids: pa.Array) -> Ints:
        starts = np.full(len(ids), NEVER)
        for rows, places in zip(
            *recall(job.memory.get(SESSION_ID, ()), hashes_of(ids)), strict=True
        ):
            np.minimum.at(starts, places, rows[_START].to_numpy())
        return starts

    rules = Rules(
        job.dataset.sessions,
        job.window.overrun,
        job.dataset.split,
        edges.calendar,
        edges.n_written,
        edges.n_closed,
    )
    cut = cut_sessions(gather(spreads, bucket), rules, known)
    scatter([(cut.kept, ints(cut.kept[WINDOW]))], path)
    carried, remembered = path.with_suffix(".carried"), path.with_suffix(".sessions")
    write_parquet(carried, cut.carried)
    ids, starts = cut.begun
    remember(remembered, hashes_of(ids), pa.table({_START: starts}))
    return SortedSessions(path, carried, remembered, cut.tally)


def collect_window(
    job: Job, spreads: Sequence[Path], position: int, path: Path
) -> dict[str, pa.Table]:
    """Bring a window's events into the order of its files; list what its vocabularies need.

    The order, (session start, session id, event time, row), is the same however the log was cut
    into parts.
    """
    events = gather(spreads, position)
    keys = (SESSION_START, SESSION_ID, EVENT_TIME, ROW)
    events = events.sort_by([(key, "ascending") for key in keys])
    pq.write_table(events, path, compression="lz4", use_dictionary=False)
    in_time = pa.array(np.lexsort((ints(events[ROW]), ints(events[EVENT_TIME]))))
    return {
        column: count_values(events.select([column, EVENT_TIME]).take(in_time), column)
        for column in job.categorical
    }


def write_window(
    job: Job, name: str, path: Path, statistics: Statistics, held: Mapping[str, int]
) -> None:
    """Encode a window and write one file per role; `held`: sizes of the vocabularies by then."""
    vocabularies = {
        column: pq.read_table(vocabulary_path(job.output, column)).slice(0, size)
        for column, size in held.items()
    }
    events = pq.read_table(path)
    begins = np.flatnonzero(is_new(codes_of(events[SESSION_ID])))
    table = encode_lists(events, begins, statistics, vocabularies, job.device, name)
    first = events.take(begins)
    for column in (SESSION_ID, USER_ID, SESSION_START):
        table = table.append_column(column, first[column])
    for column, values in _past(job, name, first, statistics, vocabularies).items():
        table = table.append_column(column, values)
    schema = window_schema(statistics)
    table = table.select(schema.names).cast(schema)

    def write(role: str) -> None:
        of_role = table.filter(first[role]).combine_chunks()
        write_parquet(window_path(job.output, job.window.unit, name, role), of_role)

    with ThreadPoolExecutor(len(ROLES)) as threads:
        list(threads.map(write, ROLES))


def _past(
    job: Job,
    window: str,
    first: pa.Table,
    statistics: Statistics,
    vocabularies: Mapping[str, pa.Table],
) -> dict[str, pa.ChunkedArray]:
    """Encode the events listed at each session's first: lists, empty where there are none."""
    names = past_columns(job.dataset)
    if not names:
        return {}
    lists = {name: first[PAST_PREFIX + name].combine_chunks() for name in names}
    events = pa.table({name: values.flatten() for name, values in lists.items()})
    lengths = pc.list_value_length(lists[ITEM_ID]).fill_null(0).to_numpy()
    begins = np.cumsum(lengths) - lengths
    table = encode_lists(events, begins, statistics, vocabularies, job.device, window)
    return {PAST_PREFIX + name: table[name] for name in table.column_names}
