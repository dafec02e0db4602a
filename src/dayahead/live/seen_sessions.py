"""Sessions as a service has seen them: their latest clicks, and which of these count."""

from collections import OrderedDict
from dataclasses import dataclass, field

from dayahead.core.columns import ITEM_ID
from dayahead.live.event import Event
from dayahead.windows.metadata import SessionRules

ENDED_KEPT = 100_000
"""Number of sessions, the latest ones, that are kept after their end."""
MOST_KEPT = 1_000_000
"""Greatest number of sessions; of more that are running, those without a click for longest go."""


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
    """Its latest clicks, in the order in which they came."""


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
        # A new list: another thread may read the old one.
        session.events = [*session.events, event][-self._rules.max_length :]
        return session, self._counts(session, event.fields[ITEM_ID])

    def _counts(self, session: SeenSession, item: object) -> bool:
        rules = self._rules
        is_repeat = rules.repeats == "drop_consecutive" and item == session.last_item
        if rules.repeats == "drop_all":
            is_repeat = item in session.items
            session.items.add(item)
        session.last_item = item
        is_beyond = rules.truncate == "first" and session.n_counted >= rules.max_length
        counts = not (is_repeat or is_beyond)
        session.n_counted += counts
        return counts

    def events_of(self, session: str) -> list[Event]:
        """Return the latest clicks of a session, in the order in which they came."""
        found = self._sessions.get(session)
        return [] if found is None else found.events

    def drop_oldest(self, now: int) -> None:
        """Drop the sessions that ended first, where too many have."""
        while len(self._sessions) > ENDED_KEPT:
            oldest = next(iter(self._sessions.values()))
            if oldest.latest + self._gap > now and len(self._sessions) <= MOST_KEPT:
                break
            self._sessions.popitem(last=False)
