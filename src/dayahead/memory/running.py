"""Running sessions: clicks that are not counted yet, and the sessions that may go on.

The memories at a time t are a function of the clicks before t, however these were delivered.
Sessions are followed click by click. A session without a click for the session gap has ended; what
comes later under its key is another one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dayahead.core.ragged import offsets_of, row_of_each
from dayahead.memory.clicks import Clicks, Flags, Floats, Ints
from dayahead.memory.growth import Growth
from dayahead.memory.settings import MemorySettings

NOTHING_WAITS = np.iinfo(np.int64).max
COUNTERS = ("n_keys", "n_ids")
"""Names of two counts in a state."""


class Events(NamedTuple):
    """N clicks with what is known of their sessions."""

    keys: Ints
    """[N] key of the session."""
    times: Ints
    """[N] microseconds since 1970."""
    items: Ints
    categories: Ints
    """[N, G]"""
    pasts: Ints
    """[N] last item that the user clicked before the session; 0: none, or not read."""
    worth: Floats
    """[N] what each click counts."""

    def take(self, chosen: Ints | slice) -> "Events":
        """Return some of the clicks, in the order given."""
        return Events._make(each[chosen] for each in self)

    def followed_by(self, others: "Events") -> "Events":
        """Append clicks."""
        return Events._make(map(np.concatenate, zip(self, others, strict=True)))


class RunningSessions:
    """Sessions that have not ended, and clicks that are delivered but not counted yet."""

    def __init__(self, settings: MemorySettings) -> None:
        self.settings = settings
        no, n_columns = np.zeros(0, np.int64), len(settings.columns)
        none = Events(no, no, no, np.zeros((0, n_columns), np.int64), no, no.astype(float))
        self.pending = none
        """In order of time."""
        self.counted = none
        """Clicks of the R running sessions, session after session, ordered by their keys."""
        self.lengths, self.n_counted, self.ids = no, no, no
        """[R] clicks so far; those that the memories have counted; number of the session, 0 where
        none is counted."""
        self.n_keys = self.n_ids = 0
        """Keys and numbers given so far."""

    def deliver(self, sessions: Clicks) -> None:
        """Take sessions of which nothing was delivered before."""
        keys = self.n_keys + row_of_each(sessions.lengths)
        pasts = sessions.earlier.latest(1)[:, 0].repeat(sessions.lengths)
        worth = np.broadcast_to(sessions.worth_of(np.arange(len(keys))), len(keys))
        columns = sessions.times, sessions.items, sessions.categories
        self.receive(Events(keys, *columns, pasts, worth))

    def receive(self, events: Events) -> None:
        """Take clicks of any sessions; the keys of new sessions follow those given so far."""
        waiting = self.pending.followed_by(events)
        # Stable: clicks of one session at the same time keep their order.
        self.pending = waiting.take(np.lexsort([waiting.keys, waiting.times]))
        self.n_keys = max(self.n_keys, int(events.keys.max(initial=-1)) + 1)

    def drop_pending(self) -> None:
        """Drop the clicks that are not counted yet."""
        self.pending = self.pending.take(slice(0))

    def last_clicks(self) -> dict[tuple[int, int], int]:
        """Return the keys of running sessions by time and item of their last counted click."""
        last = np.cumsum(self.lengths) - 1
        ends = self.counted.take(last)
        clicks = zip(ends.times.tolist(), ends.items.tolist(), strict=True)
        return dict(zip(clicks, ends.keys.tolist(), strict=True))

    def next_time(self) -> int:
        """Return the first tick at which there is something to count, or NOTHING_WAITS."""
        tick = self.settings.tick
        found = NOTHING_WAITS
        if len(self.pending.times):
            found = (int(self.pending.times[0]) // tick + 1) * tick
        if len(self.lengths):
            latest = self.counted.times[np.cumsum(self.lengths) - 1]
            found = min(found, -(-(int(latest.min()) + self.settings.gap) // tick) * tick)
        return found

    def advance(self, until: int) -> Growth:
        """Return what happened before `until` since the last call."""
        n_new = int(np.searchsorted(self.pending.times, until))
        events = self.counted.followed_by(self.pending.take(slice(n_new)))
        self.pending = self.pending.take(slice(n_new, None))
        # Stable: a session's new clicks, in order of time, come after those it had.
        order = np.argsort(events.keys, kind="stable")
        n_before, events = len(self.counted.keys), _in_order_of_time(events.take(order))
        [starts] = self._is_start(events).nonzero()
        offsets = np.append(starts, len(order))
        lengths = np.diff(offsets)
        n_counted, ids = np.zeros((2, len(starts)), np.int64)
        # Sessions that were running before, in the same order of keys.
        was_running = order[starts] < n_before
        n_counted[was_running], ids[was_running] = self.n_counted, self.ids
        is_ended = self._is_ended(events, offsets, until)
        is_counted = lengths >= self.settings.min_length
        [rows] = (is_counted & ((lengths > n_counted) | is_ended)).nonzero()
        growth = self._growth(events, offsets, rows, n_counted, is_ended, ids)
        n_counted[is_counted] = lengths[is_counted]
        self.counted = events.take(np.flatnonzero(~is_ended.repeat(lengths)))
        self.lengths, self.n_counted, self.ids = (
            each[~is_ended] for each in (lengths, n_counted, ids)
        )
        return growth

    def _is_start(self, events: Events) -> Flags:
        """Whether a click is a session's first one: it has another key, or comes after a gap."""
        is_other = np.diff(events.keys, prepend=-1) != 0
        is_late = np.diff(events.times, prepend=events.times[:1]) >= self.settings.gap
        return np.asarray(is_other | is_late)

    def _is_ended(self, events: Events, offsets: Ints, until: int) -> Flags:
        last = offsets[1:] - 1
        has_successor = np.append(events.keys[last[:-1]] == events.keys[offsets[1:-1]], False)
        is_idle = events.times[last] + self.settings.gap <= until
        return np.asarray(has_successor[: len(last)] | is_idle)

    def _growth(
        self,
        events: Events,
        offsets: Ints,
        rows: Ints,
        n_counted: Ints,
        is_ended: Flags,
        ids: Ints,
    ) -> Growth:
        """Return some rows as growth, and give numbers to those that have none yet."""
        past = None
        if self.settings.with_past:
            firsts = events.pasts[offsets[:-1]]
            known = np.flatnonzero(firsts)
            no = np.zeros((len(known), events.categories.shape[1]), np.int64)
            past = Clicks(firsts[known], known * 0, no, offsets_of(firsts > 0))
        worth = events.worth if self.settings.has_weights else None
        every = Clicks(events.items, events.times, events.categories, offsets, past, worth)
        rows = rows[every.take(rows).order()]
        unnumbered = rows[ids[rows] == 0]
        ids[unnumbered] = self.n_ids + 1 + np.arange(len(unnumbered))
        self.n_ids += len(unnumbered)
        return Growth(every.take(rows), n_counted[rows], is_ended[rows], ids[rows])

    def state_dict(self) -> dict[str, Tensor]:
        """Clicks that wait and those of running sessions [N], the sessions [R], and two counts."""
        arrays = {f"pending.{name}": each for name, each in self.pending._asdict().items()}
        arrays |= {f"counted.{name}": each for name, each in self.counted._asdict().items()}
        offsets = offsets_of(self.lengths)
        arrays |= {"offsets": offsets, "n_counted": self.n_counted, "ids": self.ids}
        state = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
        return state | {name: torch.tensor(getattr(self, name)) for name in COUNTERS}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all clicks."""
        self.pending, self.counted = (
            Events(*(state[f"{part}.{name}"].numpy() for name in Events._fields))
            for part in ("pending", "counted")
        )
        self.lengths = np.diff(state["offsets"].numpy())
        self.n_counted, self.ids = state["n_counted"].numpy(), state["ids"].numpy()
        self.n_keys, self.n_ids = (int(state[name]) for name in COUNTERS)


def _in_order_of_time(events: Events) -> Events:
    """Move a click that comes late to the time of the latest one that its session had by then."""
    is_late = (np.diff(events.keys) == 0) & (np.diff(events.times) < 0)
    times = events.times.copy() if is_late.any() else events.times
    for key in np.unique(events.keys[1:][is_late]):
        start, end = np.searchsorted(events.keys, [key, key + 1])
        times[start:end] = np.maximum.accumulate(times[start:end])
    return events._replace(times=times)
