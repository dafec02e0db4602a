"""Sessions as a service has seen them: their latest clicks, and which of these count."""

from collections import OrderedDict
from dataclasses import dataclass, field

from dayahead.core.columns import ITEM_ID
from dayahead.live.event_log import Event
from dayahead.windows.metadata import SessionRules

MOST_IDLE = 100_000
"""Number of sessions beyond which those that have ended are dropped, the oldest first."""
MOST_KEPT = 1_000_000
"""Number of sessions beyond which running ones are dropped, too."""


@dataclass(slots=True)
class SeenSession:
    """A session."""

    key: int
    """Its number."""
    latest: int = 0
    """Time of its latest click."""
    n_counted: int = 0
    """Clicks that count."""
    last_item: object = None
    items: set[object] = field(default_factory=set)
    """Its items, where the rule for repeats needs them."""
    events: list[Event] = field(default_factory=list)
    """Its latest clicks without repeats, in the order in which they came."""


class SeenSessions:
    """Sessions by their ids.

    Args:
        rules: of the data set: the rule for repeats and the greatest length hold here too, in the
            order in which clicks come.
        gap: microseconds without a click after which a session has ended.
    """

    def __init__(self, rules: SessionRules, gap: int) -> None:
        self._rules = rules
        self._gap = gap
        self._sessions: OrderedDict[str, SeenSession] = OrderedDict()
        self._n_seen = 0

    def __len__(self) -> int:
        """Return the number of sessions kept."""
        return len(self._sessions)

    def add(self, event: Event) -> tuple[SeenSession, bool]:
        """Add a click; return its session, and whether it counts."""
        session = self._sessions.get(event.session)
        if session is None:
            session = self._sessions[event.session] = SeenSession(self._n_seen)
            self._n_seen += 1
        else:
            self._sessions.move_to_end(event.session)
        session.latest = max(session.latest, event.time)
        # As of the log's time, so that a log that is replayed drops the same sessions.
        self._drop_oldest(event.arrived)
        if self._is_repeat(session, event.fields[ITEM_ID]):
            return session, False
        # A new list: another thread may read the old one.
        session.events = [*session.events, event][-self._rules.max_length :]
        counts = self._rules.truncate != "first" or session.n_counted < self._rules.max_length
        session.n_counted += counts
        return session, counts

    def _is_repeat(self, session: SeenSession, item: object) -> bool:
        is_repeat = self._rules.repeats == "drop_consecutive" and item == session.last_item
        if self._rules.repeats == "drop_all":
            is_repeat = item in session.items
            session.items.add(item)
        session.last_item = item
        return is_repeat

    def events_of(self, session: str) -> list[Event]:
        """Return the latest clicks of a session, in the order in which they came."""
        found = self._sessions.get(session)
        return [] if found is None else found.events

    def _drop_oldest(self, now: int) -> None:
        while len(self._sessions) > MOST_IDLE:
            oldest = next(iter(self._sessions.values()))
            if oldest.latest + self._gap > now and len(self._sessions) <= MOST_KEPT:
                break
            self._sessions.popitem(last=False)
