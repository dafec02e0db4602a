"""Events into sessions, and the steps a session goes through: repeats, overrun, length, cut.

Everything works on whole columns: a session is a number repeated over its events.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.columns import (
    EVENT_TIME,
    ITEM_ID,
    ROLES,
    ROW,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
    WINDOW,
)
from dayahead.config.dataset import SessionsConfig, SplitConfig
from dayahead.data.calendar import MINUTE, Calendar

REPEATED = "_repeated"
"""Marks events that the rule for repeats drops, where its scope is the user."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def in_order(events: pa.Table, key: str) -> tuple[pa.Table, Ints]:
    """Sort events by (key, time, row) and number the key's values 0, 1, ... along the rows."""
    codes = _codes(events[key])
    order = np.lexsort((ints(events[ROW]), ints(events[EVENT_TIME]), codes))
    return events.take(order), np.cumsum(_is_new(codes[order])) - 1


def repeated(groups: Ints, items: Ints, rule: str) -> Flags:
    """Say which events `rule` drops; groups (sessions or users) are ascending, events in order.

    The first of a run (drop_consecutive), or the first of its item in the group (drop_all), stays.
    """
    drops = np.zeros(len(groups), dtype=bool)
    if rule == "drop_consecutive":
        drops[1:] = (groups[1:] == groups[:-1]) & (items[1:] == items[:-1])
    elif rule == "drop_all":
        pairs = groups * (items.max(initial=0) + 1) + items
        drops[:] = True
        drops[np.unique(pairs, return_index=True)[1]] = False
    return drops


def by_user(events: pa.Table, config: SessionsConfig) -> pa.Table:
    """Do what needs all events of a user together: cut sessions by idle gap, mark repeats.

    A gap session's id is `user:time of its first event`, so it stays when the log grows. Events
    without a user are nobody's repeats; with gaps there must be none.
    """
    events, users = in_order(events, USER_ID)
    if config.repeats.scope == "user":
        drops = repeated(users, _codes(events[ITEM_ID]), config.repeats.rule)
        drops &= events[USER_ID].is_valid().to_numpy()
        events = events.append_column(REPEATED, pa.array(drops))
    if config.gap_minutes is not None:
        ids = _gap_sessions(events, users, config.gap_minutes)
        events = events.append_column(SESSION_ID, ids)
    return events


def _gap_sessions(events: pa.Table, users: Ints, gap_minutes: float) -> pa.Array:
    times = ints(events[EVENT_TIME])
    idles = np.diff(times, prepend=times[:1]) > gap_minutes * MINUTE
    begins = _is_new(users) | idles
    first = events.filter(pa.array(begins))
    moments = pc.strftime(first[EVENT_TIME], format="%Y-%m-%dT%H:%M:%SZ")
    ids = pc.binary_join_element_wise(first[USER_ID], moments, ":").combine_chunks()
    return ids.take(pa.array(np.cumsum(begins) - 1))


@dataclass(frozen=True)
class Tally:
    """What became of events and sessions, to be summed over parts of a log."""

    read: int
    """Events."""
    dropped: dict[str, int]
    """Events by the step that dropped them."""
    started: Ints
    """Sessions read, by window; so too the others below."""
    sessions: Ints
    """Sessions that passed every step."""
    events: Ints
    overrun: Ints
    """Events at or after the close of their window, kept or not."""
    roles: Ints
    """Shape [windows, 3], in the order of ROLES."""

    def __add__(self, other: "Tally") -> "Tally":
        """Sum two parts."""
        return Tally(
            self.read + other.read,
            {step: n + other.dropped[step] for step, n in self.dropped.items()},
            self.started + other.started,
            self.sessions + other.sessions,
            self.events + other.events,
            self.overrun + other.overrun,
            self.roles + other.roles,
        )


@dataclass
class _Survivors:
    """Which events are still in, and how many each step dropped."""

    alive: Flags
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, step: str, drops: Flags) -> None:
        self.dropped[step] = int(np.count_nonzero(self.alive & drops))
        self.alive &= ~drops


@dataclass(frozen=True)
class Rules:
    """What the steps go by."""

    sessions: SessionsConfig
    overrun: str
    """cut or keep, for events at or after the close of their window."""
    split: SplitConfig
    calendar: Calendar
    """Windows that cover every session's start."""


def cut_sessions(events: pa.Table, rules: Rules) -> tuple[pa.Table, Tally]:
    """Take whole sessions through the steps.

    Args:
        events: the event table's columns, a session id in every row, and REPEATED where the
            repeats' scope is the user; all events of a session are here.
        rules: what the steps go by.

    Returns:
        The events kept, in order within their session, with the session's start, user, window
        (position in the calendar) and a flag per role in every row; and the tally.
    """
    events, session = in_order(events, SESSION_ID)
    first = np.flatnonzero(_is_new(session))
    starts = ints(events[SESSION_START if SESSION_START in events.column_names else EVENT_TIME])
    starts = starts[first]
    windows = rules.calendar.positions(starts)
    beyond = ints(events[EVENT_TIME]) >= rules.calendar.closes[windows][session]
    steps = _Survivors(np.ones(len(events), dtype=bool))

    steps.drop("repeats", _repeats(events, session, rules.sessions))
    overrun = session[steps.alive & beyond]
    steps.drop("overrun", beyond & (rules.overrun == "cut"))
    lengths = np.bincount(session[steps.alive], minlength=len(first))
    stands = lengths >= rules.sessions.min_length
    steps.drop("short_sessions", ~stands[session])
    steps.drop("truncated", _truncated(steps.alive, session, first, rules.sessions))
    roles = np.zeros((len(first), len(ROLES)), dtype=bool)
    roles[stands] = roles_of(events[SESSION_ID].take(pa.array(first[stands])), rules.split)
    steps.drop("no_role", ~roles.any(axis=1)[session])

    columns = {SESSION_START: pa.array(starts).cast(TIMESTAMP), USER_ID: _users(events, first)}
    columns[WINDOW] = pa.array(windows)
    columns |= {role: pa.array(flags) for role, flags in zip(ROLES, roles.T, strict=True)}
    kept = _with_session_columns(events, session, columns).filter(pa.array(steps.alive))
    return kept, _tally(steps, session, overrun, roles, windows, len(rules.calendar))


def roles_of(session_ids: pa.ChunkedArray, split: SplitConfig) -> Flags:
    """Give sessions their roles by the hash of their id: shape [sessions, 3], order of ROLES.

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


def _tally(
    steps: _Survivors, session: Ints, overrun: Ints, roles: Flags, windows: Ints, n_windows: int
) -> Tally:
    """Count by window; events are given by their session."""

    def by_window(sessions: Ints | Flags) -> Ints:
        return np.bincount(windows[sessions], minlength=n_windows)

    return Tally(
        read=len(session),
        dropped=steps.dropped,
        started=np.bincount(windows, minlength=n_windows),
        sessions=by_window(roles.any(axis=1)),
        events=by_window(session[steps.alive]),
        overrun=by_window(overrun),
        roles=np.stack([by_window(flags) for flags in roles.T], axis=1),
    )


def _repeats(events: pa.Table, session: Ints, config: SessionsConfig) -> Flags:
    if config.repeats.scope == "user":
        return np.asarray(events[REPEATED].to_numpy())
    return repeated(session, _codes(events[ITEM_ID]), config.repeats.rule)


def _truncated(alive: Flags, session: Ints, first: Ints, config: SessionsConfig) -> Flags:
    before: Ints = np.cumsum(alive) - alive
    place = before - before[first][session]
    beyond: Flags = place >= config.max_length
    if config.truncate == "last":
        lengths = np.bincount(session[alive], minlength=len(first))
        beyond = place < (lengths - config.max_length)[session]
    return beyond


def _users(events: pa.Table, first: Ints) -> pa.Array:
    """A session's user is its first event's."""
    if USER_ID not in events.column_names:
        return pa.nulls(len(first), pa.string())
    return events[USER_ID].take(pa.array(first)).combine_chunks()


def _with_session_columns(
    events: pa.Table, session: Ints, columns: dict[str, pa.Array]
) -> pa.Table:
    """Put a value per session into every row, in place of columns of that name."""
    given = {REPEATED, *columns}
    table = events.select([name for name in events.column_names if name not in given])
    for name, values in columns.items():
        table = table.append_column(name, values.take(pa.array(session)))
    return table


def ints(column: pa.ChunkedArray) -> Ints:
    """A column without nulls as int64; a timestamp as microseconds since 1970, UTC."""
    return np.asarray(column.cast(pa.int64()).to_numpy())


def _codes(column: pa.ChunkedArray) -> Ints:
    """Equal values get equal numbers from 0; null gets -1."""
    indices = column.combine_chunks().dictionary_encode().indices
    codes: Ints = indices.fill_null(-1).to_numpy().astype(np.int64)
    return codes


def _is_new(codes: Ints) -> Flags:
    changes = np.ones(len(codes), dtype=bool)
    changes[1:] = codes[1:] != codes[:-1]
    return changes
