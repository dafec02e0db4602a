"""What needs all events of a user together: sessions cut by idle gap, repeats, past events."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    PAST_PREFIX,
    REPEATED,
    SESSION_ID,
    SESSION_START,
    SETTLED,
    USER_ID,
)
from dayahead.dataset.schema import SessionsConfig
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
from dayahead.preprocess.calendar import MINUTE
from dayahead.preprocess.lookups import ranges


@dataclass(frozen=True)
class UserRules:
    """What the events of a user go by."""

    sessions: SessionsConfig
    past_columns: tuple[str, ...]
    """Columns of the event table that past events are told by; none: no past is wanted."""
    written: int
    """Earlier runs wrote the windows before this instant (microseconds, UTC)."""
    edge: int
    """With this run, those before this one are written."""


def by_user(events: pa.Table, rules: UserRules) -> tuple[pa.Table, pa.Table]:
    """Cut sessions by idle gap, mark repeats, list past events.

    A gap session's id is `user:time of its first event`, so it stays when the log grows. Events
    without a user are nobody's repeats and have no past; with gaps there must be none.

    Args:
        events: the event table's columns and SETTLED, all that is known of each user; settled
            events bring what an earlier run added to them.
        rules: what they go by.

    Returns:
        The events with REPEATED; with gaps, SESSION_ID and SESSION_START; with past events, lists
        of them under bef_<name>, at the first event of each session (elsewhere null). And those
        of them that a later run must know of these users, from before the edge.
    """
    events, users = sort_events(events, USER_ID)
    if rules.sessions.gap_minutes is not None:
        events = _with_gap_sessions(events, users, rules.sessions.gap_minutes)
    drops = _repeats(events, users, rules.sessions)
    events = set_column(events, REPEATED, pa.array(drops))
    known = events[USER_ID].is_valid().to_numpy()
    settled = events[SETTLED].to_numpy()
    times = ints(events[EVENT_TIME])
    before = times < rules.edge
    needed = before & known & _needed(users, drops, before, rules)
    memory = events.filter(pa.array(needed & ~(settled & (times < rules.written))))
    memory = set_column(memory, SETTLED, pa.array(np.ones(len(memory), dtype=bool)))
    if rules.past_columns:
        told = known & ~drops
        events = _with_past(events, users, told, told & ~settled, rules)
    return events.filter(pa.array(~(settled & before))), memory


def _with_gap_sessions(events: pa.Table, users: Ints, gap_minutes: float) -> pa.Table:
    times = ints(events[EVENT_TIME])
    idles = np.diff(times, prepend=times[:1]) > gap_minutes * MINUTE
    begins = is_new(users) | idles
    first = events.filter(pa.array(begins))
    moments = pc.strftime(first[EVENT_TIME], format="%Y-%m-%dT%H:%M:%SZ")
    ids = pc.binary_join_element_wise(first[USER_ID], moments, ":").combine_chunks()
    starts = first[EVENT_TIME].combine_chunks()
    if SESSION_ID in first.column_names:  # a settled event goes on with the session it was in
        ids = pc.if_else(first[SETTLED], first[SESSION_ID], ids).combine_chunks()
        starts = pc.if_else(first[SETTLED], first[SESSION_START], starts).combine_chunks()
    session = pa.array(np.cumsum(begins) - 1)
    events = set_column(events, SESSION_ID, ids.take(session))
    return set_column(events, SESSION_START, starts.take(session))


def _repeats(events: pa.Table, users: Ints, config: SessionsConfig) -> Flags:
    """Say which events the rule drops; what was found of a settled event stands."""
    items = codes_of(events[ITEM_ID])
    if config.repeats.scope == "user":
        drops = find_repeats(users, items, config.repeats.rule)
        drops &= events[USER_ID].is_valid().to_numpy()
    else:
        sessions = users * len(users) + codes_of(events[SESSION_ID])
        order = np.argsort(sessions, kind="stable")
        drops = np.empty(len(users), dtype=bool)
        drops[order] = find_repeats(
            np.cumsum(is_new(sessions[order])) - 1, items[order], config.repeats.rule
        )
    if REPEATED in events.column_names:
        found = events[REPEATED].fill_null(False).to_numpy()
        drops = np.where(events[SETTLED].to_numpy(), found, drops)
    return drops


def _needed(users: Ints, drops: Flags, before: Flags, rules: UserRules) -> Flags:
    """Say what of each user's events before the edge a later run goes on from."""
    after = _later_of_group(users, before)
    needed: Flags = (
        after == 0
    )  # the last one: the next event may repeat it, or go on with its session
    repeats = rules.sessions.repeats
    if (repeats.rule, repeats.scope) == ("drop_all", "user"):
        needed |= ~drops
    if rules.past_columns:
        kept = before & ~drops
        needed |= ~drops & (_later_of_group(users, kept) < rules.sessions.past_max_length)
    return needed


def _later_of_group(groups: Ints, flags: Flags) -> Ints:
    """Count the flagged events after each event within its group; groups are ascending."""
    so_far = np.cumsum(flags)
    last = np.flatnonzero(is_new(groups[::-1])[::-1])
    later: Ints = so_far[last][np.cumsum(is_new(groups)) - 1] - so_far
    return later


def _with_past(
    events: pa.Table, users: Ints, kept: Flags, wanted: Flags, rules: UserRules
) -> pa.Table:
    """List the user's last events strictly before each session's first, at that first event."""
    first = _first_of_sessions(events, users, wanted)
    history = np.flatnonzero(kept)
    before: Ints = np.cumsum(kept) - kept
    same_instant = is_new(users) | is_new(ints(events[EVENT_TIME]))
    begin_of_instant = np.maximum.accumulate(np.where(same_instant, np.arange(len(users)), 0))
    begin_of_user = np.maximum.accumulate(np.where(is_new(users), np.arange(len(users)), 0))
    high: Ints = before[begin_of_instant[first]]
    low = np.maximum(before[begin_of_user[first]], high - rules.sessions.past_max_length)
    rows = pa.array(history[ranges(low, high - low)])
    offsets = pa.array(np.append(0, np.cumsum(high - low)).astype(np.int32))
    places = np.full(len(users), -1)
    places[first] = np.arange(len(first))
    where = pa.array(places, mask=places < 0)
    for name in rules.past_columns:
        lists = pa.ListArray.from_arrays(offsets, events[name].take(rows).combine_chunks())
        events = events.append_column(PAST_PREFIX + name, lists.take(where))
    return events


def _first_of_sessions(events: pa.Table, users: Ints, wanted: Flags) -> Ints:
    """Rows of the first wanted event of each session (of each user, where it has several)."""
    rows = np.flatnonzero(wanted)
    return np.sort(rows[first_of_pairs(users[rows], codes_of(events[SESSION_ID])[rows])])
