"""Sessions of raw events, before their ids are looked up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, LATEST_TIME, TIMESTAMP
from dayahead.core.errors import DataError
from dayahead.core.ragged import offsets_of, row_of_each


@dataclass(frozen=True)
class RawSessions:
    """Raw events of sessions: session s has the rows offsets[s]:offsets[s + 1], maybe none.

    `past` has one row per session with the earlier events of its user; None if none are known.
    """

    events: pa.Table
    offsets: NDArray[np.int64]
    past: "RawSessions | None" = None

    @classmethod
    def of(cls, tables: Sequence[pa.Table], pasts: Sequence[pa.Table | None]) -> "RawSessions":
        """Join tables of one or more sessions' events and pasts, with the same columns each."""
        none = tables[0].slice(0, 0)
        known = [none if past is None else past.select(none.column_names) for past in pasts]
        has_past = any(past is not None for past in pasts)
        return cls(*_joined(tables), RawSessions(*_joined(known)) if has_past else None)

    def check_times(self, ids: pa.Array | None = None) -> None:
        """Raise DataError if an event has no time or one that cannot be, naming the session's id.

        The past is checked, too.
        """
        times = self.events[EVENT_TIME].cast(TIMESTAMP).cast(pa.int64()).fill_null(-1).to_numpy()
        bad = np.flatnonzero((times < 0) | (times >= LATEST_TIME))
        if len(bad):
            row = int(bad[0])
            session = int(np.searchsorted(self.offsets, row, "right")) - 1
            time = self.events[EVENT_TIME][row]
            found = f"at {times[row].astype('M8[us]')}" if time.is_valid else "without event_time"
            raise DataError(
                f"{'the session' if ids is None else f'session {ids[session]}'} has an event "
                f"{found}; expected event_time from 1970 to 2199 in each"
            )
        if self.past is not None:
            self.past.check_times(ids)

    def without_empty(self, time: int) -> "RawSessions":
        """Give each session without events one event of an unknown item at a time."""
        empty = np.flatnonzero(np.diff(self.offsets) == 0)
        if not len(empty):
            return self
        nulls = {each.name: pa.nulls(len(empty), each.type) for each in self.events.schema}
        nulls[EVENT_TIME] = pa.array([time] * len(empty), nulls[EVENT_TIME].type)
        both = pa.concat_tables([self.events, pa.table(nulls, schema=self.events.schema)])
        order = np.argsort(np.concatenate([self.row_sessions, empty]), kind="stable")
        offsets = offsets_of(np.maximum(np.diff(self.offsets), 1))
        return RawSessions(both.take(pa.array(order)), offsets, self.past)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self.offsets) - 1

    @property
    def row_sessions(self) -> NDArray[np.int64]:
        """The session of each event."""
        return row_of_each(np.diff(self.offsets))


def _joined(tables: Sequence[pa.Table]) -> tuple[pa.Table, NDArray[np.int64]]:
    lengths = [len(table) for table in tables]
    return pa.concat_tables(tables, promote_options="default"), np.cumsum([0, *lengths])
