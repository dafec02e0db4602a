"""A saved model that counts clicks as they come: its state at a tick is that of those before it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TYPE, ITEM_ID, UNKNOWN, VALUE
from dayahead.core.errors import ConfigError
from dayahead.core.indices import union
from dayahead.features.session_encoder import SessionEncoder
from dayahead.live.event_log import Event
from dayahead.live.seen_sessions import SeenSessions
from dayahead.memory.clicks import Flags, Ints
from dayahead.memory.running import Events
from dayahead.model.checkpoint import StoredModel

MOST_NEW = 1_000_000
"""Most new values of a column that are added; further ones are read as unknown."""


@dataclass
class Arrivals:
    """Clicks that arrived between two ticks."""

    values: dict[str, list[object]]
    """Raw values of item_id and of the categorical features that the memories read."""
    keys: list[int] = field(default_factory=list)
    """Of their sessions."""
    times: list[int] = field(default_factory=list)
    worth: list[float] = field(default_factory=list)
    """What each of them counts."""
    is_same_tick: bool = True
    """Whether all of them happened between these ticks too."""

    def add(self, key: int, event: Event, worth: float, *, is_same_tick: bool) -> None:
        """Add a click of the session with a key."""
        self.keys.append(key)
        self.times.append(event.time)
        self.worth.append(worth)
        for name, values in self.values.items():
            values.append(event.fields.get(name))
        self.is_same_tick &= is_same_tick


class LiveModel:
    """A saved model with what has been clicked since the end of its last window.

    Clicks before that end are part of their sessions, but do not count: the model has counted them.
    The state depends on the model and the log alone, not on when the clicks were delivered: a click
    counts at the first tick after it has happened and arrived.

    Args:
        stored: a model with a tick; it is changed.

    Raises:
        ConfigError: the model does not count clicks within a window.
    """

    def __init__(self, stored: StoredModel) -> None:
        config, counter = stored.config, stored.model.counter
        if counter is None:
            raise ConfigError(
                f"serve --live: the model ({config.model.architecture}, live.tick "
                f"{config.live.tick}) does not count clicks between two fits; fit `memory` with "
                f"live.tick, or serve it without --live"
            )
        if config.model.n_past_read:
            raise ConfigError(
                "serve --live: the model reads users' earlier sessions (model.past_length), which "
                "events do not have; set model.past_length to 0, or serve it without --live"
            )
        self._stored, self._counter = stored, counter
        self.tick, self.gap = counter.settings.tick, counter.settings.gap
        self.start = config.end
        """End of the model's last window, microseconds since 1970."""
        self.sessions = SeenSessions(config.statistics.sessions, self.gap)
        self.encoder = SessionEncoder(config.statistics, stored.vocabularies)
        self.position = 0
        """Position of the last event delivered."""
        self._n_at_fit = {name: len(known.values) for name, known in self.encoder.known.items()}
        self._weights = config.events.weights or {}
        self._lock = threading.Lock()
        self._columns = (ITEM_ID, *counter.settings.columns)
        self._arrived: dict[int, Arrivals] = {}
        """By the number of the last tick before they arrived."""
        self._keys: dict[int, int] = {}
        """Keys of sessions that were running at the end of the model's last window."""
        # The log has what came after the window's end, also in sessions that the fit knew.
        counter.running.drop_pending()
        self._last_clicks = counter.running.last_clicks()
        self._n_before = counter.running.n_keys

    def deliver(self, events: Sequence[Event]) -> None:
        """Take events in the order of their positions, on any thread."""
        with self._lock:
            for event in events:
                self._add(event)
                self.position = event.position

    def _add(self, event: Event) -> None:
        session, counts = self.sessions.add(event)
        if event.time < self.start:
            self._link(session.key, event)
        elif counts:
            tick = event.arrived // self.tick
            if tick not in self._arrived:
                self._arrived[tick] = Arrivals({name: [] for name in self._columns})
            key = self._keys.get(session.key, self._n_before + session.key)
            # One without a type counts 1.
            worth = self._weights.get(str(event.fields.get(EVENT_TYPE)), 1.0)
            is_same_tick = event.time // self.tick == tick
            self._arrived[tick].add(key, event, worth, is_same_tick=is_same_tick)

    def _link(self, session: int, event: Event) -> None:
        """Go on with a session that the model has counted in part, known by its last click."""
        item = pa.array([event.fields[ITEM_ID]])
        click = event.time, int(self.encoder.known[ITEM_ID].indices(item)[0])
        self._keys.pop(session, None)
        if click in self._last_clicks:
            self._keys[session] = self._last_clicks[click]

    def advance(self, until: int) -> int:
        """Count the clicks before a tick; return how many have arrived by then."""
        with self._lock:
            ticks = sorted(each for each in self._arrived if (each + 1) * self.tick <= until)
            arrived = {tick: self._arrived.pop(tick) for tick in ticks}
        waiting: list[Arrivals] = []
        for tick, new in arrived.items():
            if new.is_same_tick:
                waiting.append(new)
                continue
            # Ticks are counted together where each click counts at the tick after it. One that is
            # late or early must find, or leave, the vocabularies as they are at its tick.
            self._receive(waiting, tick * self.tick)
            self._receive([new], (tick + 1) * self.tick)
            waiting = []
        self._receive(waiting, until)
        return sum(len(each.keys) for each in arrived.values())

    def _receive(self, parts: Sequence[Arrivals], until: int) -> None:
        """Add clicks to those that wait for their tick, and let time pass until another."""
        if parts:
            times = np.array([time for part in parts for time in part.times])
            keys = np.array([key for part in parts for key in part.keys])
            worth = np.array([worth for part in parts for worth in part.worth])
            # By time, as in a window, so that new values have the order that they have there.
            order = np.argsort(times, kind="stable")
            items, *categories = (
                self._indices(name, [each for part in parts for each in part.values[name]], order)
                for name in self._columns
            )
            sizes = {name: len(self.encoder.known[name].values) for name in self._columns}
            if sizes != self._counter.memories.sizes:
                self._counter.grow(sizes)
            values = np.array(categories, np.int64).reshape(len(categories), len(order)).T
            self._know_items(items, values)
            pasts = np.zeros_like(times)
            new = Events(keys[order], times[order], items, values, pasts, worth[order])
            self._counter.running.receive(new)
        self._counter.advance(until)

    def _know_items(self, items: Ints, values: Ints) -> None:
        """Put what the model knows of items into the values [N, G] of their clicks."""
        known, about = self._stored.items, self._stored.config.statistics.items
        if known is None or about is None:
            return
        n = int(items.max(initial=0)) + 1
        for place, name in enumerate(self._columns[1:]):
            if name in about.features:
                found = known.table.values(name, n)[items]
                values[:, place] = np.where(found > 0, found, values[:, place])

    def _indices(self, column: str, values: list[object], order: Ints) -> Ints:
        """Return vocabulary indices in an order, in which new values get theirs."""
        known = self.encoder.known[column]
        raw = _typed(values, known.values.type).take(pa.array(order))
        found = known.indices(raw)
        is_new = (found == UNKNOWN) & ~np.asarray(raw.is_null())
        if is_new.any():
            room = self._n_at_fit[column] + MOST_NEW - len(known.values)
            known.add(raw.filter(pa.array(is_new)).unique()[: max(0, room)])
            found = known.indices(raw)
        return np.asarray(found, np.int64)

    @property
    def now(self) -> int:
        """The last tick, microseconds since 1970."""
        return self._counter.memories.now

    @property
    def is_known(self) -> Flags:
        """[n] whether the item of each vocabulary index has been counted."""
        return self._counter.memories.is_known[ITEM_ID]

    def stored(self) -> StoredModel:
        """Return the model as of now: candidates and vocabularies with what is new."""
        memories = self._counter.memories
        candidates = union(self._stored.candidates, memories.counted_items)
        every = replace(self._stored, candidates=candidates)
        return replace(
            every,
            candidates=every.candidates_at(self.now),
            vocabularies={
                name: pa.table({VALUE: known.values}) for name, known in self.encoder.known.items()
            },
        )

    def popularity_of(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the expected share of items [C] in the next clicks."""
        return np.asarray(self._counter.memories.known.popularity[candidates])

    @property
    def n_new_items(self) -> int:
        """Items that have been added since the model's last window."""
        return len(self.encoder.known[ITEM_ID].values) - self._n_at_fit[ITEM_ID]

    @property
    def n_pairs(self) -> int:
        """Pairs of items that the memories hold."""
        return len(self._counter.memories.pairs.table)


def _typed(values: list[object], type_: pa.DataType) -> pa.Array:
    """Return values in a type; null where one is of another, as the log is older than the model."""
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError, OverflowError):
        if len(values) == 1:
            return pa.nulls(1, type_)
        return pa.concat_arrays([_typed([each], type_) for each in values])
