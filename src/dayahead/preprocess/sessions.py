"""Events into sessions, and the steps a session goes through: repeats, overrun, length, cut.

Everything works on whole columns: a session is a number repeated over its events.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    PAST_PREFIX,
    REPEATED,
    ROLES,
    SESSION_ID,
    SESSION_START,
    SETTLED,
    TIMESTAMP,
    USER_ID,
    WINDOW,
)
from dayahead.dataset.schema import SessionsConfig, SplitConfig
from dayahead.features.arrays import (
    Flags,
    Ints,
    codes_of,
    find_repeats,
    ints,
    is_new,
    set_column,
    sort_events,
)
from dayahead.preprocess.calendar import Calendar
from dayahead.preprocess.tally import Tally

NEVER = np.iinfo(np.int64).max
"""Start of a session that no earlier run has met."""


@dataclass(frozen=True)
class Rules:
    """What the steps go by."""

    sessions: SessionsConfig
    overrun: str
    """cut or keep, for events at or after the close of their window."""
    split: SplitConfig
    calendar: Calendar
    """Windows that cover every session's start."""
    n_written: int = 0
    """Windows, from the first on, that earlier runs wrote or dropped for good."""
    n_closed: int = 0
    """Windows that no event may join any more after this run."""


@dataclass(frozen=True)
class Cut:
    """What became of some whole sessions."""

    kept: pa.Table
    """Events that passed every step, in order within their session; with the session's start,
    user, window (position in the calendar) and a flag per role in every row, and its past events
    at its first."""
    carried: pa.Table
    """Events that a later run needs again, whole."""
    begun: tuple[pa.Array, Ints]
    """Ids and starts of the sessions whose windows close with this run."""
    tally: Tally


@dataclass(frozen=True)
class _Arranged:
    """Events in order, and what is known of each session."""

    events: pa.Table
    session: Ints
    """By event: 0, 1, ... ascending."""
    first: Ints
    """By session: its first event."""
    ids: pa.Array
    starts: Ints
    windows: Ints
    """Places in the calendar."""


@dataclass
class _Steps:
    """Which events are still in, which each step dropped, and what was noticed on the way."""

    alive: Flags
    flags: dict[str, Flags] = field(default_factory=dict)
    """Events by what a tally counts."""

    def drop(self, step: str, drops: Flags) -> None:
        self.flags[step] = self.alive & drops
        self.alive &= ~drops


def nothing_known(ids: pa.Array) -> Ints:
    """Starts of sessions where there was no earlier run."""
    return np.full(len(ids), NEVER)


def cut_sessions(
    events: pa.Table, rules: Rules, known: Callable[[pa.Array], Ints] = nothing_known
) -> Cut:
    """Take whole sessions through the steps.

    Args:
        events: the event table's columns and SETTLED, a session id in every row, and what
            `by_user` adds where it is needed; all events of a session are here, or, of a session
            that began in a window written before, those that came since.
        rules: what the steps go by.
        known: starts of sessions by id, as earlier runs met them; NEVER where they did not.
    """
    found = _arranged(events, rules, known)
    steps, roles = _through_steps(found, rules)
    closed = found.windows < rules.n_closed
    begun = closed & (found.windows >= rules.n_written)
    columns = {
        SESSION_START: pa.array(found.starts).cast(TIMESTAMP),
        USER_ID: _users(found.events, found.first),
        WINDOW: pa.array(found.windows),
        **{role: pa.array(flags) for role, flags in _by_role(roles).items()},
    }
    return Cut(
        _kept(found.events, found.session, steps.alive & closed[found.session], columns),
        _carried(found.events, closed[found.session], rules),
        (found.ids.filter(pa.array(begun)), found.starts[begun]),
        _tally(found, steps, roles, rules),
    )


def _arranged(events: pa.Table, rules: Rules, known: Callable[[pa.Array], Ints]) -> _Arranged:
    events, session = sort_events(events, SESSION_ID)
    first = np.flatnonzero(is_new(session))
    ids = events[SESSION_ID].take(pa.array(first)).combine_chunks()
    starts = ints(events[SESSION_START if SESSION_START in events.column_names else EVENT_TIME])
    starts = np.minimum(starts[first], known(ids))
    # What starts before the first window came late for it: an earlier run began with it.
    windows = np.maximum(rules.calendar.positions(starts), 0)
    return _Arranged(events, session, first, ids, starts, windows)


def _through_steps(found: _Arranged, rules: Rules) -> tuple[_Steps, Flags]:
    """Drop events step by step; give the sessions left their roles (shape [sessions, 3])."""
    events, session = found.events, found.session
    fresh = ~np.asarray(events[SETTLED].to_numpy())
    beyond = ints(events[EVENT_TIME]) >= rules.calendar.closes[found.windows][session]
    cuts = beyond & (rules.overrun == "cut")
    written = (found.windows < rules.n_written)[session]
    steps = _Steps(fresh.copy(), {"read": fresh, "late": fresh & written & ~cuts})
    steps.drop("repeats", _repeats(events, session, rules.sessions))
    steps.flags["beyond"] = beyond & steps.alive
    steps.drop("overrun", cuts)
    lengths = np.bincount(session[steps.alive], minlength=len(found.first))
    stands = lengths >= rules.sessions.min_length
    steps.drop("short_sessions", ~stands[session])
    steps.drop("truncated", _truncated(steps.alive, session, found.first, rules.sessions))
    roles = np.zeros((len(found.first), len(ROLES)), dtype=bool)
    roles[stands] = roles_of(found.ids.filter(pa.array(stands)), rules.split)
    steps.drop("no_role", ~roles.any(axis=1)[session])
    steps.flags["events"] = steps.alive
    return steps, roles


def _tally(found: _Arranged, steps: _Steps, roles: Flags, rules: Rules) -> Tally:
    n_windows = len(rules.calendar)
    new = found.windows >= rules.n_written
    by_session = {"started": new, "sessions": roles.any(axis=1), **_by_role(roles)}
    by_event = {name: found.session[flags] for name, flags in steps.flags.items()}
    sessions = by_event | {name: np.flatnonzero(flags) for name, flags in by_session.items()}
    return Tally(
        {name: np.bincount(found.windows[of], minlength=n_windows) for name, of in sessions.items()}
    )


def roles_of(session_ids: pa.Array | pa.ChunkedArray, split: SplitConfig) -> Flags:
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


def _by_role(roles: Flags) -> dict[str, Flags]:
    return dict(zip(ROLES, roles.T, strict=True))


def _repeats(events: pa.Table, session: Ints, config: SessionsConfig) -> Flags:
    if config.repeats.scope == "user":
        return np.asarray(events[REPEATED].to_numpy())
    return find_repeats(session, codes_of(events[ITEM_ID]), config.repeats.rule)


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


def _kept(events: pa.Table, session: Ints, alive: Flags, columns: dict[str, pa.Array]) -> pa.Table:
    """Take the events kept, with a value per session in every row (in place of columns so named).

    Lists of past events move from their session's first event to the first that is kept.
    """
    rows = np.flatnonzero(alive)
    begins = is_new(session[rows])
    given = {REPEATED, SETTLED, *columns}
    table = events.select([name for name in events.column_names if name not in given]).take(rows)
    for name, values in columns.items():
        table = set_column(table, name, values.take(pa.array(session[rows])))
    for name in (name for name in table.column_names if name.startswith(PAST_PREFIX)):
        told = np.flatnonzero(events[name].is_valid().to_numpy())
        # The first of several, where a session has several users.
        of_session = np.full(session.max(initial=-1) + 1, -1)
        of_session[session[told][::-1]] = told[::-1]
        source = np.where(begins, of_session[session[rows]], -1)
        table = set_column(table, name, events[name].take(pa.array(source, mask=source < 0)))
    return table


def _carried(events: pa.Table, closed: Flags, rules: Rules) -> pa.Table:
    """Take the events of open windows; and where users matter, of closed ones what is as late."""
    edge = rules.calendar.edges[rules.n_closed]
    carried = ~closed
    if REPEATED in events.column_names:
        carried |= ints(events[EVENT_TIME]) >= edge
    names = [name for name in events.column_names if not name.startswith(PAST_PREFIX)]
    rows = np.flatnonzero(carried)
    return set_column(events.select(names).take(rows), SETTLED, pa.array(closed[rows]))
