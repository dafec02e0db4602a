"""Repeated events: sent again (sessions.retry_seconds), or dropped by sessions.repeats."""

import numpy as np
import pyarrow as pa

from dayahead.core.columns import EVENT_TIME, EVENT_TYPE, ITEM_ID, SECOND, SESSION_ID, USER_ID
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import Flags, Ints, codes_of, find_repeats, ints, is_new, set_column
from dayahead.preprocess.event_log import FINALISED

REPEATED = "_repeated"
"""Column that marks events which the rule for repeats drops."""
RETRIED = "_retried"
"""Column that marks events which were sent again (sessions.retry_seconds), where that is set."""


def mark_user_repeats(events: pa.Table, users: Ints, dataset: DatasetConfig) -> pa.Table:
    """Add REPEATED, and RETRIED with sessions.retry_seconds; a finalised event keeps its marks.

    Events are sorted by (user, time, row), and `users` numbers their users 0, 1, ...; events
    without a user repeat none under scope: user.
    """
    rules = dataset.sessions
    sessions = users * len(users) + codes_of(events[SESSION_ID])
    retried = find_retries(events, sessions, dataset)
    if rules.retry_seconds is not None:
        retried = _as_before(events, RETRIED, retried)
        events = set_column(events, RETRIED, pa.array(retried))
    is_by_user = rules.repeats.scope == "user"
    repeated = find_rule_repeats(events, users if is_by_user else sessions, ~retried, dataset)
    if is_by_user:
        repeated &= events[USER_ID].is_valid().to_numpy()
    return set_column(events, REPEATED, pa.array(_as_before(events, REPEATED, repeated)))


def find_retries(events: pa.Table, groups: Ints, dataset: DatasetConfig) -> Flags:
    """Flag events that follow one of the same user, item and type within sessions.retry_seconds.

    They are of one group, a session, whose events are in order of (time, row). The event before
    counts whether it is flagged or not, so of a click that was sent over and over the first stays.
    """
    found = np.zeros(len(groups), dtype=bool)
    if dataset.sessions.retry_seconds is None:
        return found
    acts = _acts(events, dataset)
    if USER_ID in events.column_names:
        acts = acts * (len(acts) + 1) + codes_of(events[USER_ID]) + 1
    order = np.lexsort((acts, groups))  # stable: in order of time within
    times = ints(events[EVENT_TIME])[order]
    is_first = is_new(groups[order]) | is_new(acts[order])
    waited = np.diff(times, prepend=times[:1])
    found[order] = ~is_first & (waited <= dataset.sessions.retry_seconds * SECOND)
    return found


def find_rule_repeats(
    events: pa.Table, groups: Ints, candidates: Flags, dataset: DatasetConfig
) -> Flags:
    """Flag the candidates that the rule drops; other events do not count.

    Events of a group, a session or user, are in order of (time, row); groups need not be together.
    """
    found = np.zeros(len(groups), dtype=bool)
    rule = dataset.sessions.repeats.rule
    if rule == "keep":
        return found
    rows = np.flatnonzero(candidates)
    rows = rows[np.argsort(groups[rows], kind="stable")]
    numbers = np.cumsum(is_new(groups[rows])) - 1
    found[rows] = find_repeats(numbers, _acts(events, dataset)[rows], rule)
    return found


def retried_before(events: pa.Table) -> Flags:
    """Return the marks of RETRIED; where there are none, nothing was sent again."""
    if RETRIED not in events.column_names:
        return np.zeros(len(events), dtype=bool)
    return np.asarray(events[RETRIED].to_numpy())


def _acts(events: pa.Table, dataset: DatasetConfig) -> Ints:
    """Number the items, or the pairs of item and type where the log has types of events."""
    items = codes_of(events[ITEM_ID])
    if dataset.columns.event_type is None:
        return items
    types = codes_of(events[EVENT_TYPE]) + 1
    pairs: Ints = items * (types.max(initial=0) + 1) + types
    return pairs


def _as_before(events: pa.Table, name: str, found: Flags) -> Flags:
    if name not in events.column_names:
        return found
    before = events[name].fill_null(False).to_numpy()
    return np.where(events[FINALISED].to_numpy(), before, found)
