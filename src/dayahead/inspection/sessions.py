"""The sessions of a sample: repeated rows and clicks in them, and windows that hold a hundred."""

from dataclasses import dataclass

import numpy as np

from dayahead.core.columns import UNITS
from dayahead.core.ragged import Ints
from dayahead.inspection.keys import GAP, Keys, pair_codes
from dayahead.inspection.table import Table
from dayahead.inspection.times import NEVER

WANTED = 100
"""Sessions of a window: window.min_sessions of params.yaml."""
_LENGTHS = (("day", 1), ("day", 7), ("hour", 6), ("hour", 1), ("minute", 15), ("minute", 5))
"""Windows to choose from, the usual ones first."""
_MIN_WINDOWS = 4
_RETRY = 2_000_000
"""Microseconds within which the same click may have been sent again."""


@dataclass(frozen=True)
class Windows:
    """Windows with about a hundred sessions each, or as many as there are."""

    unit: str
    length: int
    sessions: int
    """Estimate of the sessions of two clicks or more in a window."""
    n: int
    """Estimate of the number of windows."""

    @property
    def shown(self) -> str:
        """Return the length in words."""
        return f"{self.length} {self.unit}{'s' * (self.length > 1)}"

    def options(self, zone: str) -> list[str]:
        """Return the options of `dvc exp run` that differ from params.yaml as it comes."""
        found = [] if self.unit == "day" else [f"window.unit={self.unit}"]
        found += [] if self.length == 1 else [f"window.length={self.length}"]
        if self.unit == "day" and zone != "UTC":
            found.append(f"window.timezone={zone}")
        if self.sessions < WANTED * 1.5:
            found.append(f"window.min_sessions={max(2, self.sessions // 4)}")
        return [f"-S {option}" for option in found]


def session_codes(table: Table, keys: Keys, times: Ints) -> Ints:
    """Return a number of the session of each row, -1 for none."""
    if keys.session is not None:
        codes = table.columns[keys.session].codes
        both = keys.is_of_user and keys.user is not None
        return pair_codes(codes, table.columns[keys.user].codes) if both else codes  # type: ignore[index]
    assert keys.user is not None
    users = np.where(times == NEVER, -1, table.columns[keys.user].codes)
    order = np.lexsort((times, users))
    sorted_users, sorted_times = users[order], times[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(sorted_users) != 0) | (np.diff(sorted_times) > GAP)
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(begins)
    return np.where(users < 0, -1, codes)


def suggest(table: Table, keys: Keys, times: Ints, n_files: int) -> Windows:
    """Return windows of about a hundred sessions, at least four of them where the log allows."""
    n, first = table.n_first, times[: table.n_first]
    sessions = session_codes(table, keys, times)[:n]
    starts = _starts(sessions, first)
    valid, longer = first[first != NEVER], table.times_longer
    span = max(1, int(np.ptp(valid))) if len(valid) else 1
    is_ordered = len(valid) > 1 and _is_ordered(valid)
    rate = len(starts) / span * (1 if is_ordered else longer)
    known = times[times != NEVER]
    whole = max(int(np.ptp(known)), span * (longer if is_ordered else 1))
    if not is_ordered and n_files > 1:
        rate *= n_files
    options = [
        Windows(unit, length, round(rate * size), round(whole / size))
        for unit, length in _LENGTHS
        for size in [UNITS[unit] * length]
    ]
    good = [each for each in options if each.sessions >= WANTED and each.n >= _MIN_WINDOWS]
    enough = [each for each in options if each.n >= _MIN_WINDOWS]
    return next(iter(good), max(enough or options[-1:], key=lambda each: each.sessions))


def _is_ordered(times: Ints) -> bool:
    """Return whether rows are in order of time, all but a few, rather than of users."""
    latest = np.maximum.accumulate(np.minimum(times, np.quantile(times, 0.999)))
    return bool((times >= latest - GAP).mean() > 0.9)  # noqa: PLR2004


def _starts(sessions: Ints, times: Ints) -> Ints:
    """Return the first times of the sessions of two events or more."""
    valid = (sessions >= 0) & (times != NEVER)
    codes, times = sessions[valid], times[valid]
    order = np.lexsort((times, codes))
    _, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
    starts: Ints = times[order][first[counts > 1]]
    return starts


def repeated(table: Table, keys: Keys, times: Ints) -> dict[str, int]:
    """Count rows equal to an earlier one, and events that repeat the one of a moment before."""
    every = np.zeros(table.n_rows, np.int64)
    for column in table.columns.values():
        every = np.unique(
            every * (len(column.distinct) + 1) + column.codes + 1, return_inverse=True
        )[1]
    sessions = session_codes(table, keys, times)
    acts = pair_codes(sessions, table.columns[keys.item].codes)
    if keys.event_type is not None:
        acts = pair_codes(acts, table.columns[keys.event_type].codes)
    order = np.lexsort((times, acts))
    by_act = times[order]
    same = (np.diff(acts[order]) == 0) & (acts[order][1:] >= 0)
    same &= by_act[:-1] != NEVER  # from there the difference would overflow
    order = np.lexsort((times, sessions))
    items = table.columns[keys.item].codes[order]
    after = (np.diff(sessions[order]) == 0) & (sessions[order][1:] >= 0) & (np.diff(items) == 0)
    return {
        "equal": table.n_rows - int(every.max(initial=-1)) - 1,
        "retried": int((same & (np.diff(by_act) <= _RETRY)).sum()),
        "consecutive": int(after.sum()),
    }
