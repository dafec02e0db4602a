"""Sessions whose ids are not those of one visit: of several users, or used again on other days."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import USER_ID
from dayahead.features.arrays import Flags, Ints, is_new

SESSION_USERS, SESSION_DAYS = "session_users", "session_days"
Examples = Mapping[str, tuple[int, str]]
"""By defect: start and id of the first session that has it."""


def has_several_users(events: pa.Table, of_event: Ints, counted: Flags, n_sessions: int) -> Flags:
    """Flag the sessions whose counted events name more than one user; shape [sessions].

    `of_event` numbers the sessions of events, ascending; events without a user name none.
    """
    several = np.zeros(n_sessions, dtype=bool)
    if USER_ID not in events.column_names:
        return several
    users = events[USER_ID].combine_chunks()
    counted = counted & np.asarray(users.is_valid())
    if not counted.all():
        users, of_event = users.filter(pa.array(counted)), of_event[counted]
    # In a session of several users, two events in a row have different ones somewhere.
    differs = np.asarray(pc.not_equal(users[1:], users[:-1])) & ~is_new(of_event)[1:]
    several[of_event[1:][differs]] = True
    return several


def first_examples(ids: pa.Array, starts: Ints, flags: Mapping[str, Flags]) -> Examples:
    """Return, by defect, start and id of the first session flagged, in that order."""
    found = {}
    for name, flagged in flags.items():
        rows = np.flatnonzero(flagged)
        if len(rows):
            start = int(starts[rows].min())
            first = ids.take(pa.array(rows[starts[rows] == start]))
            found[name] = (start, min(first.to_pylist()))
    return found


def merged(examples: Iterable[Mapping[str, Sequence[int | str]]]) -> dict[str, tuple[int, str]]:
    """Return the first example of each defect among those of several tasks and runs."""
    found: dict[str, tuple[int, str]] = {}
    for each in examples:
        for name, (start, session_id) in each.items():
            pair = int(start), str(session_id)
            found[name] = min(found.get(name, pair), pair)
    return found
