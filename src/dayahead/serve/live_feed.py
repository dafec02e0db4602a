"""The events that a service takes, and the model that counts them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence

from dayahead.core.columns import SECOND
from dayahead.live.clock import Clock
from dayahead.live.event_log import Event, EventLog
from dayahead.live.live_model import LiveModel
from dayahead.serve.event_checks import check_events, shown_time
from dayahead.serve.live_recommender import LiveRecommender
from dayahead.serve.messages import IngestResult, LiveEvent
from dayahead.serve.metrics import Metrics
from dayahead.serve.micro_batches import MicroBatches, Room
from dayahead.serve.model_source import LoadedModel

WRITTEN_AT_ONCE = 5_000
"""Events of one transaction, more or less."""
WAITING = 100_000
"""Events that may wait to be written."""
RETRY_SECONDS = 5
log = logging.getLogger(__name__)


class LiveFeed:
    """Passes the events of a log to the model in use.

    `switch_to` and `current` are called on the model's thread.

    Args:
        events: the log; it is read from its start for each new model.
        clock: that of the log.
        keep_seconds: how long events are kept after they were counted by a fit.
        metrics: of the service.
    """

    def __init__(
        self,
        events: EventLog,
        clock: Clock,
        keep_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._events = events
        self._clock = clock
        self._keep = int(keep_seconds * SECOND)
        self._metrics = metrics
        self._writing: MicroBatches[list[Event], list[bool]] | None = None
        self._in_use: tuple[LiveModel, LoadedModel] | None = None
        """The model in use and what it recommends as of its last tick."""
        events.deliver = self._deliver
        self._retry_at = 0.0
        """When the log is asked again, after it did not answer."""
        self.is_broken = False
        """Whether a count has failed: the service must be started again."""

    def follow(self, loaded: LoadedModel) -> LiveModel:
        """Let a model that has been loaded count the log so far; the model in use goes on.

        Raises:
            ConfigError: the model does not count clicks.
        """
        model = LiveModel(loaded.recommender.stored)
        # Before the log is read: all events before this tick are in it then.
        until = self._last_tick(model)
        self._catch_up(model)
        n_clicks = model.advance(until)
        log.info("model %s has counted %d clicks of the log", loaded.version, n_clicks)
        return model

    def _catch_up(self, model: LiveModel) -> None:
        for event in self._events.read(model.position):
            model.deliver([event])

    def _deliver(self, events: Sequence[Event]) -> None:
        """Deliver to the model the events that it has not read from the log already.

        They are on disk, so a model that cannot take them does not refuse them.
        """
        if self._in_use is None or self.is_broken:
            return
        model, _ = self._in_use
        try:
            model.deliver([each for each in events if each.position > model.position])
        except Exception:  # noqa: BLE001 - it is logged
            self._break()

    def _break(self) -> None:
        """Stop counting with a model that is in no state of any tick."""
        version = self._used()[1].version
        log.exception("model %s counts no clicks: start the service again", version)
        self.is_broken = True

    def switch_to(self, model: LiveModel, version: str) -> LoadedModel:
        """Answer with a model from now on; return it."""
        until = self._last_tick(model)
        with self._events.paused():
            self._catch_up(model)
            found = self._counted(model, version, until)
        self.is_broken = False
        return found

    def advance(self) -> None:
        """Let a model that has not failed count what has arrived; raises as `current` does."""
        if not self.is_broken:
            self.current()

    def current(self) -> LoadedModel:
        """Return the model as of the last tick, once it has counted the clicks before that.

        Raises:
            RuntimeError: it has failed to count some clicks before.
        """
        model, current = self._used()
        if self.is_broken:
            raise RuntimeError(
                f"model {current.version} could not count clicks: the service must be started again"
            )
        until = self._last_tick(model)
        if until <= model.now:
            return current
        try:
            return self._counted(model, current.version, until)
        except Exception:
            self._break()
            raise

    def _counted(self, model: LiveModel, version: str, until: int) -> LoadedModel:
        """Let a model count the clicks before a tick, and answer with it from now on."""
        start = time.perf_counter()
        n_clicks = model.advance(until)
        found = LoadedModel(LiveRecommender(model.stored(), live=model), version)
        self._in_use = model, found
        self._metrics.ticks.observe(time.perf_counter() - start)
        self._show(model, n_clicks)
        return found

    def _show(self, model: LiveModel, n_clicks: int) -> None:
        self._metrics.clicks.inc(n_clicks)
        self._metrics.counted_until.set(model.now / SECOND)
        self._metrics.live.labels("sessions").set(len(model.sessions))
        self._metrics.live.labels("new_items").set(model.n_new_items)
        self._metrics.live.labels("pairs").set(model.n_pairs)

    def _last_tick(self, model: LiveModel) -> int:
        return max(self._complete_until() // model.tick * model.tick, model.now)

    def _complete_until(self) -> int:
        if time.monotonic() < self._retry_at:
            return 0
        try:
            return self._events.complete_until()
        except OSError as error:
            # What has been counted goes on to be served.
            log.warning("no events are counted for %d seconds: %s", RETRY_SECONDS, error)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return 0

    @property
    def counted_until(self) -> str:
        """The last tick, in ISO 8601."""
        return shown_time(self._used()[0].now)

    def _used(self) -> tuple[LiveModel, LoadedModel]:
        assert self._in_use is not None, "no model is in use yet"
        return self._in_use

    async def ingest(self, events: Sequence[LiveEvent]) -> IngestResult:
        """Write events to the log; they are on disk when it returns.

        Raises:
            OSError: they could not be written.
            Overloaded: too many wait to be written.
        """
        (model, current), writing = self._used(), self._writing
        assert writing is not None, "ingest() outside of running()"
        between = model.start - model.gap, self._clock.latest_possible()
        good, refused = check_events(current.recommender, events, *between)
        [is_new] = await writing.ask([good]) if good else [[]]
        if good:
            self._metrics.lag.set((self._clock.now() - good[-1].time) / SECOND)
        taken = IngestResult(sum(is_new), len(good) - sum(is_new), refused)
        self._metrics.events.labels("accepted").inc(taken.accepted)
        self._metrics.events.labels("duplicate").inc(taken.duplicates)
        self._metrics.events.labels("refused").inc(len(refused))
        return taken

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write what comes; at the end, what still waits."""
        room: Room[list[Event]] = Room(
            cost=len,
            max_batch=WRITTEN_AT_ONCE,
            batch_cost=WRITTEN_AT_ONCE,
            waiting_cost=WAITING,
            small_cost=WRITTEN_AT_ONCE,
        )
        self._writing = MicroBatches(self._write, room, "events")
        writing = asyncio.create_task(self._writing.run())
        try:
            yield
        finally:
            self._writing.close()
            await writing
            self._writing = None

    def _write(self, requests: Sequence[list[Event]]) -> list[list[bool]]:
        """Write the events of several requests in one transaction."""
        is_new = iter(self._events.append([event for events in requests for event in events]))
        return [[next(is_new) for _ in events] for events in requests]

    def prune(self) -> None:
        """Remove the events that no model needs, and that have been kept long enough."""
        model, _ = self._used()
        # A session that was running at a model's start goes on: its events are needed for a gap.
        needed = model.start - max(self._keep, model.gap)
        until = min(needed, self._clock.now() - self._keep)
        if n_removed := self._events.prune(until):
            log.info("%d events were removed from the log", n_removed)
