"""Sessions whose ids are not those of one visit: of several users, or used again on other days."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dayahead.features.arrays import Flags, Ints

SESSION_USERS, SESSION_DAYS = "session_users", "session_days"
Examples = Mapping[str, tuple[int, str]]
"""By defect: start and id of the first session that has it."""


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
