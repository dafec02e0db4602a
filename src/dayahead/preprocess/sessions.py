"""Events into sessions: the steps that need a whole session.

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
    DAY,
    EVENT_TIME,
    PAST_PREFIX,
    ROLES,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
    WINDOW,
)
from dayahead.dataset.schema import DatasetConfig, SplitConfig
from dayahead.dataset.sessions import SessionsConfig
from dayahead.features.arrays import Flags, Ints, ints, is_new, set_column, sort_events
from dayahead.preprocess.calendar import Progress
from dayahead.preprocess.defects import SESSION_DAYS, SESSION_USERS, Examples, first_examples
from dayahead.preprocess.event_log import FINALISED
from dayahead.preprocess.repeats import (
    REPEATED,
    RETRIED,
    find_retries,
    find_rule_repeats,
    retried_before,
)

UNSEEN = np.iinfo(np.int64).max
"""Start of a session that no earlier run has seen: later than every time."""
STEPS = ("retries", "repeats", "overrun", "short_sessions", "truncated", "no_role")
"""What may drop an event, in this order. Other counts by window (`SessionResult.counts`):

read      events read                           started   sessions read
beyond    events at or after the close of       sessions  sessions that passed every step
          their window, kept or not             train, valid, test: sessions by role
late      events of windows written before they came
events    events that passed every step
grace     of these, events after the end of their window: they are not trained on

session_users  sessions with several users before the close of their window
session_days   events more than 24 hours after the start of their session
"""
IN_GRACE = "_in_grace"
"""Column that marks the events counted as grace."""


def steps_of(sessions: SessionsConfig) -> tuple[str, ...]:
    """Return those of STEPS that these settings have."""
    return STEPS if sessions.retry_seconds is not None else STEPS[1:]


def needs_users(sessions: SessionsConfig) -> bool:
    """Return whether a step needs all events of a user together."""
    by_gap, has_past = sessions.gap_minutes is not None, sessions.past_max_length > 0
    return by_gap or has_past or sessions.repeats.scope == "user"


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
    examples: Examples


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
    kept = _kept(sessions, flags, is_closed, columns)
    by_session = {SESSION_USERS: _of_several_users(sessions, progress)}
    of_day = np.bincount(sessions.of_event[flags[SESSION_DAYS]], minlength=len(sessions.first)) > 0
    return SessionResult(
        kept,
        _carry_over(sessions.events, is_closed[sessions.of_event], progress),
        (sessions.ids.filter(pa.array(closes_now)), sessions.starts[closes_now]),
        _counts(sessions, flags, by_session, roles, progress),
        first_examples(sessions.ids, sessions.starts, by_session | {SESSION_DAYS: of_day}),
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
    times = ints(sessions.events[EVENT_TIME])
    beyond = times >= progress.calendar.closes[sessions.windows][of_event]
    is_cut = beyond & (overrun == "cut")
    is_written = (sessions.windows < progress.n_written)[of_event]
    flags = {"read": fresh, "late": fresh & is_written & ~is_cut, "events": fresh.copy()}
    flags[SESSION_DAYS] = fresh & (times - sessions.starts[of_event] > DAY)

    def drop(step: str, drops: Flags) -> None:
        flags[step] = flags["events"] & drops
        flags["events"] &= ~drops

    retried, repeated = _repeats(sessions, dataset)
    # What is cut is counted as overrun only: a later run no longer has the events that it repeats.
    drop("retries", retried & ~is_cut)
    drop("repeats", repeated & ~is_cut)
    flags["beyond"] = beyond & flags["events"]
    drop("overrun", is_cut)
    lengths = np.bincount(of_event[flags["events"]], minlength=len(sessions.first))
    is_long = lengths >= rules.min_length
    drop("short_sessions", ~is_long[of_event])
    drop("truncated", _truncated(flags["events"], sessions, rules))
    roles = np.zeros((len(sessions.first), len(ROLES)), dtype=bool)
    roles[is_long] = roles_of(sessions.ids.filter(pa.array(is_long)), dataset.split)
    ends = progress.calendar.edges[1:][sessions.windows][of_event]
    in_grace = (times >= ends) & (overrun == "cut")
    drop("no_role", ~_roles_without_grace(flags["events"], in_grace, sessions, roles, rules))
    flags["grace"] = flags["events"] & in_grace
    return flags, roles


def _of_several_users(sessions: _Sessions, progress: Progress) -> Flags:
    """Flag the sessions with several users; later events of a written window do not count."""
    several = np.zeros(len(sessions.first), dtype=bool)
    if USER_ID not in sessions.events.column_names:
        return several
    users = sessions.events[USER_ID].combine_chunks()
    closes = progress.calendar.closes[sessions.windows][sessions.of_event]
    counted = (ints(sessions.events[EVENT_TIME]) < closes) & np.asarray(users.is_valid())
    users, of_event = users.filter(pa.array(counted)), sessions.of_event[counted]
    # In a session of several users, two events in a row have different ones somewhere.
    differs = np.asarray(pc.not_equal(users[1:], users[:-1])) & ~is_new(of_event)[1:]
    several[of_event[1:][differs]] = True
    return several & (sessions.windows >= progress.n_written)


def _repeats(sessions: _Sessions, dataset: DatasetConfig) -> tuple[Flags, Flags]:
    """Flag the events that were sent again, and those of the others that the rule drops."""
    events, of_event = sessions.events, sessions.of_event
    is_marked = RETRIED in events.column_names
    retried = retried_before(events) if is_marked else find_retries(events, of_event, dataset)
    if dataset.sessions.repeats.scope == "user":
        return retried, np.asarray(events[REPEATED].to_numpy())
    return retried, find_rule_repeats(events, of_event, ~retried, dataset)


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
    others: Flags = np.asarray(np.delete(roles, train, axis=1).any(axis=1))
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
    others = {REPEATED, RETRIED, FINALISED, *columns}
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
    sessions: _Sessions,
    flags: dict[str, Flags],
    by_session: dict[str, Flags],
    roles: Flags,
    progress: Progress,
) -> pd.DataFrame:
    windows = {name: sessions.windows[sessions.of_event[each]] for name, each in flags.items()}
    windows |= {name: sessions.windows[each] for name, each in by_session.items()}
    windows["started"] = sessions.windows[sessions.windows >= progress.n_written]
    windows["sessions"] = sessions.windows[roles.any(axis=1)]
    windows |= {role: sessions.windows[has] for role, has in zip(ROLES, roles.T, strict=True)}
    n_windows = len(progress.calendar.names)
    return pd.DataFrame({k: np.bincount(v, minlength=n_windows) for k, v in windows.items()})
