"""Events into sessions: the steps that need a whole user.

Everything works on whole columns: a session or a user is a number repeated over its events.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import (
    EVENT_TIME,
    PAST_PREFIX,
    SECOND,
    SESSION_ID,
    SESSION_START,
    USER_ID,
)
from dayahead.core.ragged import offsets_of, ranges
from dayahead.dataset.schema import DatasetConfig
from dayahead.dataset.sessions import SessionsConfig
from dayahead.features.arrays import (
    Flags,
    Ints,
    codes_of,
    first_of_pairs,
    ints,
    is_new,
    set_column,
    sort_events,
)
from dayahead.preprocess.calendar import MINUTE, Progress
from dayahead.preprocess.event_log import FINALISED, past_columns
from dayahead.preprocess.repeats import REPEATED, mark_user_repeats, retried_before


def apply_user_steps(
    events: pa.Table, dataset: DatasetConfig, progress: Progress
) -> tuple[pa.Table, pa.Table]:
    """Cut sessions by inactivity gap, mark repeats, list past events.

    A gap session's id is `user:time of its first event`, so it stays when the log grows. Events
    without a user are no repeats and have no past; with gaps there must be none.

    `events` has the event table's columns and FINALISED, all that is known of each user; finalised
    events have the columns that an earlier run added.

    Returns:
        The events with REPEATED, with sessions.retry_seconds RETRIED too; with gaps, SESSION_ID and
        SESSION_START; with past events, lists of them under bef_<name>, at the first event of each
        session (elsewhere null). And the events of these users in closed windows that a later run
        needs.
    """
    sessions = dataset.sessions
    events, users = sort_events(events, USER_ID)
    if sessions.gap_minutes is not None:
        events = _with_gap_sessions(events, users, sessions.gap_minutes)
    events = mark_user_repeats(events, users, dataset)
    retried = retried_before(events)
    drops = retried | events[REPEATED].to_numpy()
    has_user = events[USER_ID].is_valid().to_numpy()
    is_final = events[FINALISED].to_numpy()
    times = ints(events[EVENT_TIME])
    is_closed = times < progress.closed_until
    if SESSION_START in events.column_names:
        # An event before the start of its session waits for that window: the carry-over has it.
        is_closed &= ints(events[SESSION_START]) < progress.closed_until
    needed = is_closed & has_user & _needed_later(users, drops, is_closed, sessions)
    if sessions.retry_seconds is not None:
        # The last that was no retry, and those that the next events may be retries of.
        needed |= is_closed & (_n_later_of_group(users, is_closed & ~retried) == 0)
        needed |= is_closed & (times >= progress.closed_until - sessions.retry_seconds * SECOND)
    was_known = is_final & (times < progress.calendar.edges[progress.n_written])
    context = events.filter(pa.array(needed & ~was_known))
    context = set_column(context, FINALISED, pa.array(np.ones(len(context), dtype=bool)))
    if columns := past_columns(dataset):
        kept = has_user & ~drops
        rows = np.flatnonzero(kept & ~is_final)
        # First events of each session, and of each of its users where it has several.
        first = np.sort(rows[first_of_pairs(users[rows], codes_of(events[SESSION_ID])[rows])])
        events = _with_past(events, users, kept, first, sessions.past_max_length, columns)
    return events.filter(pa.array(~(is_final & is_closed))), context


def _with_gap_sessions(events: pa.Table, users: Ints, gap_minutes: float) -> pa.Table:
    times = ints(events[EVENT_TIME])
    is_after_gap = np.diff(times, prepend=times[:1]) > gap_minutes * MINUTE
    begins = is_new(users) | is_after_gap
    first = events.filter(pa.array(begins))
    iso_times = pc.strftime(first[EVENT_TIME], format="%Y-%m-%dT%H:%M:%SZ")
    ids = pc.binary_join_element_wise(first[USER_ID], iso_times, ":").combine_chunks()
    starts = first[EVENT_TIME].combine_chunks()
    if SESSION_ID in first.column_names:  # a finalised event keeps the session it was in
        ids = pc.if_else(first[FINALISED], first[SESSION_ID], ids).combine_chunks()
        starts = pc.if_else(first[FINALISED], first[SESSION_START], starts).combine_chunks()
    session = pa.array(np.cumsum(begins) - 1)
    return set_column(
        set_column(events, SESSION_ID, ids.take(session)), SESSION_START, starts.take(session)
    )


def _needed_later(users: Ints, drops: Flags, is_closed: Flags, sessions: SessionsConfig) -> Flags:
    """Flag the events of closed windows that a later run needs."""
    # The last one: the next event may repeat it, or continue its session.
    needed: Flags = _n_later_of_group(users, is_closed) == 0
    if (sessions.repeats.rule, sessions.repeats.scope) == ("drop_all", "user"):
        needed |= ~drops
    if sessions.past_max_length:
        n_later = _n_later_of_group(users, is_closed & ~drops)
        needed |= ~drops & (n_later < sessions.past_max_length)
    return needed


def _n_later_of_group(groups: Ints, flags: Flags) -> Ints:
    """Count the flagged events after each event within its group; groups are ascending."""
    so_far = np.cumsum(flags)
    last = np.flatnonzero(is_new(groups[::-1])[::-1])
    later: Ints = so_far[last][np.cumsum(is_new(groups)) - 1] - so_far
    return later


def _with_past(
    events: pa.Table, users: Ints, kept: Flags, first: Ints, max_length: int, columns: list[str]
) -> pa.Table:
    """At each of the `first` events, list the user's last kept events strictly before it."""
    history = np.flatnonzero(kept)
    n_before: Ints = np.cumsum(kept) - kept
    instants = np.cumsum(is_new(users) | is_new(ints(events[EVENT_TIME])))
    high: Ints = n_before[np.searchsorted(instants, instants[first])]
    low = np.maximum(n_before[np.searchsorted(users, users[first])], high - max_length)
    rows = pa.array(history[ranges(low, high - low)])
    offsets = pa.array(offsets_of(high - low).astype(np.int32))
    number = np.full(len(users), -1)
    number[first] = np.arange(len(first))
    taken = pa.array(number, mask=number < 0)
    for name in columns:
        lists = pa.ListArray.from_arrays(offsets, events[name].take(rows).combine_chunks())
        events = events.append_column(PAST_PREFIX + name, lists.take(taken))
    return events
