"""Earlier sessions and the items that they visited, by session and by item."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dayahead.core.ragged import Ints, offsets_of, ranges


@dataclass(frozen=True)
class Occurrences:
    """The different items of a batch's sessions; rows ascend, and items in a row."""

    row: Ints
    item: Ints
    last: Ints
    """Position of the item's last event in the session, from 1."""
    count: Ints
    """Events of the item in the session."""

    @classmethod
    def of(cls, items: Ints, lengths: Ints) -> "Occurrences":
        """Find them in right-padded sessions [B, L]; negative items are left out."""
        is_event = np.arange(items.shape[1]) < lengths[:, None]
        rows, columns = np.nonzero(is_event & (items >= 0))
        found = items[rows, columns]
        order = np.lexsort((columns, found, rows))
        rows, found, columns = rows[order], found[order], columns[order]
        is_new = (np.diff(rows, prepend=-1) != 0) | (np.diff(found, prepend=-1) != 0)
        first = np.flatnonzero(is_new)
        count = np.diff(first, append=len(rows))
        return cls(rows[first], found[first], columns[first + count - 1] + 1, count)


@dataclass(frozen=True)
class Visits:
    """Which items each session visited; sessions are numbered by time, the oldest is 0."""

    times: Ints
    """[S] time of each session's last event, microseconds."""
    offsets: Ints
    """[S + 1]: session s has the visits offsets[s] : offsets[s + 1]."""
    items: Ints
    """[N] items from 0; distinct within a session, and ascending."""
    positions: Ints
    """[N] position of the item's last event in the session, from 1."""

    @classmethod
    def none(cls) -> "Visits":
        """Return the visits of no session."""
        empty = np.zeros(0, np.int64)
        return cls(empty, np.zeros(1, np.int64), empty, empty)

    @classmethod
    def join(cls, parts: Sequence["Visits"]) -> "Visits":
        """Join and sort by time; sessions of equal time are sorted by what they visited."""
        times = np.concatenate([part.times for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        items = np.concatenate([part.items for part in parts])
        positions = np.concatenate([part.positions for part in parts])
        sessions = np.arange(len(times)).repeat(counts)
        # A hash of each session's visits, so that ties do not depend on the order of counting.
        content = np.bincount(sessions, np.sin(items + positions / 7), minlength=len(times))
        order = np.lexsort((content, times))
        visits = ranges(offsets_of(counts)[order], counts[order])
        return cls(times[order], offsets_of(counts[order]), items[visits], positions[visits])

    @cached_property
    def counts(self) -> Ints:
        """[S] visits of each session."""
        return np.diff(self.offsets)

    @cached_property
    def sessions(self) -> Ints:
        """[N] the session of each visit."""
        return np.arange(len(self.times)).repeat(self.counts)

    @cached_property
    def by_item(self) -> tuple[Ints, Ints]:
        """The visits sorted by (item, session), and their items."""
        order = np.argsort(self.items, kind="stable")
        return order, self.items[order]

    def newest(self, n_sessions: int) -> "Visits":
        """Keep sessions that are among the `n_sessions` newest of one of their items."""
        visits, items = self.by_item
        is_kept = np.zeros(len(self.times), bool)
        is_kept[self.sessions[visits[from_end(items) < n_sessions]]] = True
        is_visit = is_kept[self.sessions]
        return Visits(
            self.times[is_kept],
            offsets_of(self.counts[is_kept]),
            self.items[is_visit],
            self.positions[is_visit],
        )


def from_end(keys: Ints) -> Ints:
    """Return how many values come after each one in its group; equal keys are neighbours."""
    ends = np.searchsorted(keys, keys, "right")
    return ends - np.arange(len(keys)) - 1
