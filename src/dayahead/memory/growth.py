"""Growth: what happened to sessions since they were counted last."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dayahead.core.ragged import step_of_each
from dayahead.memory.clicks import Clicks, Flags, Ints, cut_clicks


@dataclass(frozen=True)
class Growth:
    """Sessions with clicks that no memory has counted yet, or that have ended."""

    sessions: Clicks
    """R rows, none empty: all clicks so far, in order of the sessions' last clicks."""
    n_counted: Ints
    """[R] clicks at the start of each row that are counted already."""
    is_ended: Flags
    """[R] whether the row's last click is the session's last one."""
    ids: Ints
    """[R] which session it is; 0 where it will not grow."""

    @classmethod
    def whole(cls, sessions: Clicks) -> "Growth":
        """Return ended sessions of which nothing is counted yet."""
        no = np.zeros(len(sessions), np.int64)
        return cls(sessions, no, np.ones(len(sessions), bool), no)

    @cached_property
    def is_new(self) -> Flags:
        """[N] which clicks are not counted yet."""
        steps = step_of_each(self.sessions.lengths)
        return np.asarray(steps >= self.n_counted.repeat(self.sessions.lengths))

    @cached_property
    def is_end(self) -> Flags:
        """[N] which clicks turn out to be their session's last one."""
        is_end = np.zeros(len(self.sessions.items), bool)
        is_end[self.sessions.last[self.is_ended]] = True
        return is_end

    def parts(self) -> Iterator["Growth"]:
        """Yield consecutive rows of at most CLICKS clicks, or one row; at least one part."""
        parts = cut_clicks(self.sessions.lengths)
        if len(parts) == 1:
            yield self
            return
        for part in parts:
            rows = np.arange(part.start, part.stop)
            yield Growth(
                self.sessions.take(rows), self.n_counted[part], self.is_ended[part], self.ids[part]
            )

    def with_new_clicks(self) -> "Growth":
        """Leave out the sessions that have ended without a new click."""
        [rows] = (self.sessions.lengths > self.n_counted).nonzero()
        if len(rows) == len(self.ids):
            return self
        parts = self.n_counted[rows], self.is_ended[rows], self.ids[rows]
        return Growth(self.sessions.take(rows), *parts)
