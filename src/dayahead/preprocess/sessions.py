"""Events into sessions: the steps that need a whole user, then those that need a whole session.

Everything works on whole columns: a session or a user is a number repeated over its events.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    PAST_PREFIX,
    ROLES,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
    WINDOW,
)
from dayahead.core.ragged import offsets_of, ranges
from dayahead.dataset.schema import DatasetConfig, RepeatsConfig, SessionsConfig, SplitConfig
from dayahead.features.arrays import (
    Flags,
    Ints,
    codes_of,
    find_repeats,
    first_of_pairs,
    ints,
    is_new,
    set_column,
    sort_events,
)
from dayahead.preprocess.calendar import MINUTE, Progress
from dayahead.preprocess.event_log import FINALISED, past_columns

UNSEEN = np.iinfo(np.int64).max
"""Start of a session that no earlier run has seen."""
REPEATED = "_repeated"
"""Column that marks events which the rule for repeats drops."""
STEPS = ("repeats", "overrun", "short_sessions", "truncated", "no_role")
"""What may drop an event, in this order. Other counts by window (`SessionResult.counts`):

read      events read                           started   sessions read
beyond    events at or after the close of       sessions  sessions that passed every step
          their window, kept or not             train, valid, test: sessions by role
late      events of windows written before they came
events    events that passed every step
grace     of these, events after the end of their window: they are not trained on
"""
IN_GRACE = "_in_grace"
"""Column that marks the events counted as grace."""


def needs_users(sessions: SessionsConfig) -> bool:
    """Return whether a step needs all events of a user together."""
    by_gap, has_past = sessions.gap_minutes is not None, sessions.past_max_length > 0
    return by_gap or has_past or sessions.repeats.scope == "user"


def apply_user_steps(
    events: pa.Table, dataset: DatasetConfig, progress: Progress
) -> tuple[pa.Table, pa.Table]:
    """Cut sessions by inactivity gap, mark repeats, list past events.

    A gap session's id is `user:time of its first event`, so it stays when the log grows. Events
    without a user are no repeats and have no past; with gaps there must be none.

    `events` has the event table's columns and FINALISED, all that is known of each user; finalised
    events have the columns that an earlier run added.

    Returns:
        The events with REPEATED; with gaps, SESSION_ID and SESSION_START; with past events, lists
        of them under bef_<name>, at the first event of each session (elsewhere null). And the
        events of these users in closed windows that a later run needs.
    """
    sessions = dataset.sessions
    events, users = sort_events(events, USER_ID)
    if sessions.gap_minutes is not None:
        events = _with_gap_sessions(events, users, sessions.gap_minutes)
    drops = _user_repeats(events, users, sessions.repeats)
    events = set_column(events, REPEATED, pa.array(drops))
    has_user = events[USER_ID].is_valid().to_numpy()
    is_final = events[FINALISED].to_numpy()
    times = ints(events[EVENT_TIME])
    is_closed = times < progress.closed_until
    needed = is_closed & has_user & _needed_later(users, drops, is_closed, sessions)
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


def _user_repeats(events: pa.Table, users: Ints, repeats: RepeatsConfig) -> Flags:
    """Flag the events that the rule drops; a finalised event keeps its flag."""
    items = codes_of(events[ITEM_ID])
    if repeats.scope == "user":
        drops = find_repeats(users, items, repeats.rule)
        drops &= events[USER_ID].is_valid().to_numpy()
    else:
        sessions = users * len(users) + codes_of(events[SESSION_ID])
        order = np.argsort(sessions, kind="stable")
        drops = np.empty(len(users), dtype=bool)
        drops[order] = find_repeats(
            np.cumsum(is_new(sessions[order])) - 1, items[order], repeats.rule
        )
    if REPEATED in events.column_names:
        found = events[REPEATED].fill_null(False).to_numpy()
        drops = np.where(events[FINALISED].to_numpy(), found, drops)
    return drops


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


@dataclass(frozen=True)
class SessionResult:
    """Result of the steps for some whole sessions."""

    kept: pa.Table
    """Events that passed every step, in order within their session; with the session's start,
    user, window (position in the calendar) and a flag per role in every row (of events in the
    grace, not for train), and its past events at its first."""
    carry_over: pa.Table
    """Events that a later run needs again, with all columns."""
    closed: tuple[pa.Array, Ints]
    """Ids and starts of the sessions whose windows close with this run."""
    counts: pd.DataFrame
    """int64, a row per window; columns: see STEPS."""


@dataclass(frozen=True)
class _Sessions:
    """Events sorted by session, and the properties of each session."""

    events: pa.Table
    of_event: Ints
    """Shape [events]: 0, 1, ... ascending; the others have shape [sessions]."""
    first: Ints
    """Row of each session's first event."""
    ids: pa.Array
    starts: Ints
    windows: Ints
    """Positions in the calendar."""


def apply_session_steps(
    events: pa.Table,
    dataset: DatasetConfig,
    overrun: str,
    progress: Progress,
    known_starts: Callable[[pa.Array], Ints],
) -> SessionResult:
    """Take whole sessions through repeats, overrun, length and truncation, and give them roles.

    `events` has the event table's columns and FINALISED, a session id in every row, and the columns
    of `apply_user_steps` where it is needed; all events of a session are here, or, of a session
    that began in a window written before, those that came since. `overrun` is window.overrun.
    `known_starts` returns the starts of sessions by id, as earlier runs saw them, or UNSEEN.
    """
    sessions = _sessions(events, progress, known_starts)
    flags, roles = _steps(sessions, dataset, overrun, progress)
    is_closed = sessions.windows < progress.n_closed
    closes_now = is_closed & (sessions.windows >= progress.n_written)
    first = pa.array(sessions.first)
    users = pa.nulls(len(first), pa.string())
    if USER_ID in sessions.events.column_names:  # a session's user is its first event's
        users = sessions.events[USER_ID].take(first).combine_chunks()
    columns = {
        SESSION_START: pa.array(sessions.starts).cast(TIMESTAMP),
        USER_ID: users,
        WINDOW: pa.array(sessions.windows),
        **{role: pa.array(has_role) for role, has_role in zip(ROLES, roles.T, strict=True)},
    }
    return SessionResult(
        _kept(sessions, flags, is_closed, columns),
        _carry_over(sessions.events, is_closed[sessions.of_event], progress),
        (sessions.ids.filter(pa.array(closes_now)), sessions.starts[closes_now]),
        _counts(sessions, flags, roles, progress),
    )


def _sessions(
    events: pa.Table, progress: Progress, known_starts: Callable[[pa.Array], Ints]
) -> _Sessions:
    events, of_event = sort_events(events, SESSION_ID)
    first = np.flatnonzero(is_new(of_event))
    ids = events[SESSION_ID].take(pa.array(first)).combine_chunks()
    starts = ints(events[SESSION_START if SESSION_START in events.column_names else EVENT_TIME])
    starts = np.minimum(starts[first], known_starts(ids))
    # An earlier run began with the first window: sessions before it count as late for that one.
    windows = np.maximum(progress.calendar.positions(starts), 0)
    return _Sessions(events, of_event, first, ids, starts, windows)


def _steps(
    sessions: _Sessions, dataset: DatasetConfig, overrun: str, progress: Progress
) -> tuple[dict[str, Flags], Flags]:
    """Flag the events by what is counted (see STEPS); return roles too, shape [sessions, 3]."""
    rules, of_event = dataset.sessions, sessions.of_event
    fresh = ~np.asarray(sessions.events[FINALISED].to_numpy())
    beyond = (
        ints(sessions.events[EVENT_TIME]) >= progress.calendar.closes[sessions.windows][of_event]
    )
    is_cut = beyond & (overrun == "cut")
    is_written = (sessions.windows < progress.n_written)[of_event]
    flags = {"read": fresh, "late": fresh & is_written & ~is_cut, "events": fresh.copy()}

    def drop(step: str, drops: Flags) -> None:
        flags[step] = flags["events"] & drops
        flags["events"] &= ~drops

    if rules.repeats.scope == "user":
        drop("repeats", np.asarray(sessions.events[REPEATED].to_numpy()))
    else:
        items = codes_of(sessions.events[ITEM_ID])
        drop("repeats", find_repeats(of_event, items, rules.repeats.rule))
    flags["beyond"] = beyond & flags["events"]
    drop("overrun", is_cut)
    lengths = np.bincount(of_event[flags["events"]], minlength=len(sessions.first))
    is_long = lengths >= rules.min_length
    drop("short_sessions", ~is_long[of_event])
    drop("truncated", _truncated(flags["events"], sessions, rules))
    roles = np.zeros((len(sessions.first), len(ROLES)), dtype=bool)
    roles[is_long] = roles_of(sessions.ids.filter(pa.array(is_long)), dataset.split)
    ends = progress.calendar.edges[1:][sessions.windows][of_event]
    in_grace = (ints(sessions.events[EVENT_TIME]) >= ends) & (overrun == "cut")
    drop("no_role", ~_roles_without_grace(flags["events"], in_grace, sessions, roles, rules))
    flags["grace"] = flags["events"] & in_grace
    return flags, roles


def _roles_without_grace(
    alive: Flags, in_grace: Flags, sessions: _Sessions, roles: Flags, rules: SessionsConfig
) -> Flags:
    """Remove the role train from sessions that are too short without their events in the grace.

    Returns:
        Which events have a role; events in the grace are not for train.
    """
    of_event, train = sessions.of_event, ROLES.index("train")
    lengths = np.bincount(of_event[alive & ~in_grace], minlength=len(roles))
    is_cut = np.bincount(of_event[alive & in_grace], minlength=len(roles)) > 0
    roles[:, train] &= ~is_cut | (lengths >= rules.min_length)
    others = np.delete(roles, train, axis=1).any(axis=1)
    has_role: Flags = others[of_event] | (roles[:, train][of_event] & ~in_grace)
    return has_role


def roles_of(session_ids: pa.Array | pa.ChunkedArray, split: SplitConfig) -> Flags:
    """Return the roles of sessions by the hash of their id: shape [sessions, 3], order of ROLES.

    u = first 8 bytes of sha256("{seed}:{id}"), big endian, / 2^64; a role is an interval of u.
    """
    digests = b"".join(
        hashlib.sha256(f"{split.seed}:{session_id}".encode()).digest()[:8]
        for session_id in session_ids.to_pylist()
    )
    # The 53 bits that a float64 holds: rounding all 64 could reach 1, which is in no interval.
    u = (np.frombuffer(digests, dtype=">u8").astype(np.uint64) >> np.uint64(11)) * 2.0**-53
    intervals = (split.train, split.valid, split.test)
    return np.stack([(low <= u) & (u < high) for low, high in intervals], axis=1)


def _truncated(alive: Flags, sessions: _Sessions, rules: SessionsConfig) -> Flags:
    of_event = sessions.of_event
    n_before: Ints = np.cumsum(alive) - alive
    position = n_before - n_before[sessions.first][of_event]
    drops: Flags = position >= rules.max_length
    if rules.truncate == "last":
        lengths = np.bincount(of_event[alive], minlength=len(sessions.first))
        drops = position < (lengths - rules.max_length)[of_event]
    return drops


def _kept(
    sessions: _Sessions, flags: dict[str, Flags], is_closed: Flags, columns: dict[str, pa.Array]
) -> pa.Table:
    """Take the events kept; `columns` has a value per session, which goes into every row.

    Lists of past events move from their session's first event to the first that is kept.
    """
    events, rows = sessions.events, np.flatnonzero(flags["events"] & is_closed[sessions.of_event])
    of_row = sessions.of_event[rows]
    others = {REPEATED, FINALISED, *columns}
    table = events.select([name for name in events.column_names if name not in others]).take(rows)
    for name, values in columns.items():
        table = set_column(table, name, values.take(pa.array(of_row)))
    in_grace = pa.array(flags["grace"][rows])
    table = set_column(table, "train", pc.and_not(table["train"], in_grace))
    table = set_column(table, IN_GRACE, in_grace)
    for name in (name for name in table.column_names if name.startswith(PAST_PREFIX)):
        listed = np.flatnonzero(events[name].is_valid().to_numpy())
        # The first of several, where a session has several users.
        source_of_session = np.full(len(sessions.first), -1)
        source_of_session[sessions.of_event[listed][::-1]] = listed[::-1]
        source = np.where(is_new(of_row), source_of_session[of_row], -1)
        table = set_column(table, name, events[name].take(pa.array(source, mask=source < 0)))
    return table


def _carry_over(events: pa.Table, is_closed: Flags, progress: Progress) -> pa.Table:
    """Take events of open windows; where a step needs users, all later events too."""
    taken = ~is_closed
    if REPEATED in events.column_names:
        taken |= ints(events[EVENT_TIME]) >= progress.closed_until
    names = [name for name in events.column_names if not name.startswith(PAST_PREFIX)]
    rows = np.flatnonzero(taken)
    return set_column(events.select(names).take(rows), FINALISED, pa.array(is_closed[rows]))


def _counts(
    sessions: _Sessions, flags: dict[str, Flags], roles: Flags, progress: Progress
) -> pd.DataFrame:
    windows = {name: sessions.windows[sessions.of_event[each]] for name, each in flags.items()}
    windows["started"] = sessions.windows[sessions.windows >= progress.n_written]
    windows["sessions"] = sessions.windows[roles.any(axis=1)]
    windows |= {role: sessions.windows[has] for role, has in zip(ROLES, roles.T, strict=True)}
    n_windows = len(progress.calendar.names)
    return pd.DataFrame({k: np.bincount(v, minlength=n_windows) for k, v in windows.items()})
