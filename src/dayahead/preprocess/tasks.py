"""The tasks of Dask's workers: each function reads files, writes files and returns little.

The data set's file and the settings are in a `Job`; tables never pass through the scheduler.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.config.windows import WindowConfig
from dayahead.core.columns import (
    EVENT_ID,
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
from dayahead.core.ragged import offsets_of
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import Ints, codes_of, ints, is_new
from dayahead.features.vocabulary import count_values
from dayahead.features.workflow import encode_lists
from dayahead.preprocess.calendar import Progress
from dayahead.preprocess.defects import Examples
from dayahead.preprocess.event_log import Chunk, past_columns, set_aside_path, split_strays
from dayahead.preprocess.incremental import CARRY_OVER, LOOKUPS, WINDOWS
from dayahead.preprocess.items import with_item_features
from dayahead.preprocess.metadata import window_schema
from dayahead.preprocess.sessions import (
    IN_GRACE,
    UNSEEN,
    apply_session_steps,
    needs_users,
)
from dayahead.preprocess.shuffle import (
    bucket_of,
    hash_values,
    look_up,
    read_shuffled,
    write_lookup,
    write_shuffled,
)
from dayahead.preprocess.user_steps import apply_user_steps
from dayahead.windows.folder import vocabulary_path, window_path
from dayahead.windows.metadata import Statistics

_START = "start"


@dataclass(frozen=True)
class Job:
    """Input that all tasks share."""

    dataset: DatasetConfig
    window: WindowConfig
    run: Path
    """Folder of the run; `preprocess.incremental` says what is in it."""
    lookups: Mapping[str, Sequence[Path]]
    """Lookup tables of earlier runs, by key: user_id, session_id."""
    n_buckets: int
    max_events: int
    """Maximum number of events that a task holds at once."""
    span: tuple[int, int] | None = None
    """Of the log (`RawManifest.span`): events outside are set aside."""
    items: Path | None = None
    """Features of the table of items, see `preprocess.items`; None: there is no table."""

    def write_lookup(self, key: str, bucket: int, values: pa.Array, rows: pa.Table) -> None:
        """Write a lookup table for later runs: rows that are found by the values of their key."""
        # Numbered after the tables of earlier runs, which are in the same folder.
        path = self.run / LOOKUPS / key / f"{len(self.lookups[key]) + bucket:05d}.arrow"
        write_lookup(path, hash_values(values), rows)


def scatter_chunk(job: Job, chunk: Chunk, path: Path) -> tuple[int, list[int]]:
    """Shuffle events by user, where a step needs users, else by session.

    Events outside the log's span are written to a file of their own, `set_aside_path(path)`.

    Returns:
        How many events are left out because gaps cut sessions and they name no user; and first and
        last start of a session (microseconds, UTC), of each table read.
    """
    without_user = 0
    bounds: list[int] = []
    strays: list[pa.Table] = []
    key = USER_ID if needs_users(job.dataset.sessions) else SESSION_ID
    start = EVENT_TIME if job.dataset.columns.session_start is None else SESSION_START
    names = job.dataset.event_schema().names
    if job.dataset.columns.event_id is not None:
        names.remove(EVENT_ID)

    def keyed() -> Iterator[tuple[pa.Table, Ints]]:
        nonlocal without_user
        for table in chunk.tables(names, job.max_events):
            events, outside = split_strays(table, job.span)
            strays.extend([outside] if len(outside) else [])
            n_read = len(events)
            if job.dataset.sessions.gap_minutes is not None:
                events = events.filter(events[USER_ID].is_valid())
            without_user += n_read - len(events)
            starts = ints(events[start])
            bounds.extend([int(starts.min()), int(starts.max())] if len(starts) else [])
            yield events, bucket_of(events[key], job.n_buckets)

    write_shuffled(keyed(), path)
    if strays:
        write_parquet(set_aside_path(path), pa.concat_tables(strays))
    return without_user, bounds


def process_users(
    job: Job, paths: Sequence[Path], progress: Progress, bucket: int, path: Path
) -> None:
    """Process one bucket of users, and shuffle their events by session.

    Sessions are cut, repeats marked, past events listed; events that later runs need are saved.
    """
    events = read_shuffled(paths, bucket)
    users = pc.unique(events[USER_ID].combine_chunks())
    context = [rows for rows, _ in look_up(job.lookups[USER_ID], hash_values(users))]
    events = pa.concat_tables([events, *context], promote_options="default")
    events, context_later = apply_user_steps(events, job.dataset, progress)
    write_shuffled([(events, bucket_of(events[SESSION_ID], job.n_buckets))], path)
    job.write_lookup(USER_ID, bucket, context_later[USER_ID], context_later)


def process_sessions(
    job: Job, paths: Sequence[Path], progress: Progress, bucket: int, path: Path
) -> tuple[pd.DataFrame, Examples]:
    """Process one bucket of sessions, and shuffle the events kept by window.

    Carry-over events and the starts of sessions are saved for later runs.

    Returns:
        The counts by window, and examples of sessions with defects.
    """

    def known_starts(ids: pa.Array) -> Ints:
        starts = np.full(len(ids), UNSEEN)
        for rows, positions in look_up(job.lookups[SESSION_ID], hash_values(ids)):
            # `at`, because several rows may have the same position.
            np.minimum.at(starts, positions, rows[_START].to_numpy())
        return starts

    events = read_shuffled(paths, bucket)
    found = apply_session_steps(events, job.dataset, job.window.overrun, progress, known_starts)
    write_shuffled([(found.kept, ints(found.kept[WINDOW]))], path)
    write_parquet(job.run / CARRY_OVER / f"{bucket:05d}.parquet", found.carry_over)
    ids, starts = found.closed
    job.write_lookup(SESSION_ID, bucket, ids, pa.table({_START: starts}))
    return found.counts, found.examples


def collect_windows(
    job: Job,
    paths: Sequence[Path],
    progress: Progress,
    positions: Sequence[int],
    collected: Sequence[Path],
) -> list[list[dict[str, pa.Table]]]:
    """Sort windows' events as in their files; return the values of each categorical column.

    The order, (session start, session id, event time, row), is the same however the log was cut
    into parts. `positions` ascend. A window with events in its grace has two tables of values:
    until its end, and after it. Events get the features of their items as of their times or, after
    the end of their window, as of that end.
    """
    keys = (WINDOW, SESSION_START, SESSION_ID, EVENT_TIME, ROW)
    together = read_shuffled(paths, positions).sort_by([(key, "ascending") for key in keys])
    begins = np.searchsorted(ints(together[WINDOW]), positions)
    last = progress.calendar.edges[1:][ints(together[WINDOW])] - 1
    known = np.minimum(ints(together[EVENT_TIME]), last)
    together = with_item_features(together, job.items, known).combine_chunks()

    def collect(begin: int, end: int, path: Path) -> list[dict[str, pa.Table]]:
        events = together.slice(begin, end - begin)
        pq.write_table(events, path, compression="lz4", use_dictionary=False)
        columns = categorical_columns(job.dataset)
        # Vocabularies are in order of event time, while window files are in order of sessions.
        in_time = pa.array(np.lexsort((ints(events[ROW]), ints(events[EVENT_TIME]))))
        events = events.select([*columns, EVENT_TIME, IN_GRACE]).take(in_time)
        after = events.filter(events[IN_GRACE])
        parts = [events.filter(pc.invert(events[IN_GRACE])), after] if len(after) else [events]
        return [{column: count_values(part, column) for column in columns} for part in parts]

    return list(map(collect, begins, [*begins[1:], len(together)], collected))


def categorical_columns(dataset: DatasetConfig) -> list[str]:
    """Return the columns that have a vocabulary."""
    features = dataset.all_features.items()
    return [ITEM_ID, *(name for name, feature in features if feature.kind == "categorical")]


def write_windows(
    job: Job,
    statistics: Statistics,
    names: Sequence[str],
    paths: Sequence[Path],
    n_known: Mapping[str, Ints],
) -> None:
    """Encode the events of some windows together; write one file per window and role.

    `n_known` says, by column, how many values of its vocabulary each window knows.
    """
    # If windows have statistics of their own, each is a task by itself.
    output, statistics = job.run / WINDOWS, statistics.at(names[-1])
    vocabularies = {column: pq.read_table(vocabulary_path(output, column)) for column in n_known}

    def encoded(events: pa.Table, first: Ints, windows: Ints) -> pa.Table:
        known = {column: sizes[windows] for column, sizes in n_known.items()}
        return encode_lists(events, first, statistics, vocabularies, known)

    parts = [pq.read_table(path) for path in paths]
    events = pa.concat_tables(parts)
    windows = np.repeat(np.arange(len(names)), [len(part) for part in parts])
    begins = np.flatnonzero(is_new(codes_of(events[SESSION_ID])))
    first, of_session = events.take(begins), windows[begins]
    table = encoded(events, begins, windows)
    others = {column: first[column] for column in (SESSION_ID, USER_ID, SESSION_START)}
    others |= _encoded_past(job, first, of_session, encoded)
    schema = window_schema(statistics)

    def whole(table: pa.Table) -> pa.Table:
        columns = {**dict(zip(table.column_names, table.columns, strict=True)), **others}
        return pa.table(columns).select(schema.names).cast(schema)

    tables = dict.fromkeys(ROLES, whole(table))
    if pc.any(events[IN_GRACE]).as_py():
        tables["train"] = whole(_without(table, events[IN_GRACE]))

    def write(number: int, role: str) -> None:
        begin, end = np.searchsorted(of_session, [number, number + 1])
        has_role = first[role].slice(begin, end - begin)
        of_role = tables[role].slice(begin, end - begin).filter(has_role).combine_chunks()
        write_parquet(window_path(output, job.window.unit, names[number], role), of_role)

    with ThreadPoolExecutor(len(ROLES)) as threads:
        list(threads.map(write, *zip(*product(range(len(names)), ROLES), strict=True)))


def _without(sessions: pa.Table, is_dropped: pa.ChunkedArray) -> pa.Table:
    """Drop events from the lists of sessions; `is_dropped` is in the order of the lists."""
    kept = pc.invert(is_dropped).combine_chunks()
    # A list's new offset is the number of events kept before its old one.
    n_before = offsets_of(kept.to_numpy(zero_copy_only=False))
    offsets = pa.array(n_before[sessions[ITEM_ID].combine_chunks().offsets], pa.int32())
    lists = [
        pa.ListArray.from_arrays(offsets, column.combine_chunks().flatten().filter(kept))
        for column in sessions.columns
    ]
    return pa.table(lists, sessions.column_names)


def _encoded_past(
    job: Job, first: pa.Table, windows: Ints, encoded: Callable[[pa.Table, Ints, Ints], pa.Table]
) -> dict[str, pa.ChunkedArray]:
    """Encode the events listed at each session's first: lists, empty where there are none."""
    names = past_columns(job.dataset)
    if not names:
        return {}
    lists = {name: first[PAST_PREFIX + name].combine_chunks() for name in names}
    events = pa.table({name: values.flatten() for name, values in lists.items()})
    events = with_item_features(events, job.items, ints(events[EVENT_TIME]))
    lengths = pc.list_value_length(lists[ITEM_ID]).fill_null(0).to_numpy()
    begins = np.cumsum(lengths) - lengths
    table = encoded(events, begins, np.repeat(windows, lengths))
    return {PAST_PREFIX + name: table[name] for name in table.column_names}
