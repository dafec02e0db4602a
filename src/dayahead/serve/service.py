"""The model in use, the requests that wait for it, and its replacement while it serves."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from dayahead.core.errors import ConfigError, DayaheadError, first_line
from dayahead.serve.answers import AnyResult, Request, Result, answer_requests
from dayahead.serve.limits import Limits, n_entries_of
from dayahead.serve.live_feed import LiveFeed
from dayahead.serve.messages import (
    Answer,
    IngestResult,
    LiveEvent,
    SessionRequest,
    SimilarAnswer,
    SimilarRequest,
)
from dayahead.serve.metrics import Metrics
from dayahead.serve.micro_batches import MicroBatches, Room
from dayahead.serve.model_source import LoadedModel, ModelSource
from dayahead.serve.request import ColdStart

MAX_BATCH = 256
"""Maximum number of sessions in one pass of the model."""
PASS_ENTRIES = 50_000
"""Maximum number of entries of the sessions in one pass, so that it ends soon."""
SMALL_ENTRIES = 2_000
"""Maximum number of entries of a small request, accepted even when half of the queue is full."""
PRUNE_SECONDS = 3600
"""Seconds between two removals of old events."""
Batches = MicroBatches[Request, AnyResult]
NewFeed = Callable[[Metrics], LiveFeed]
log = logging.getLogger(__name__)


class Service:
    """Answers requests with the newest good model of a source.

    Args:
        source: source of models; the first one is loaded here.
        cold_start: the default where a request does not say.
        reload_seconds: seconds between checks for a new model.
        limits: limits of requests.
        feed: returns what takes events, given the service's metrics; None: nothing does.

    Raises:
        ModelFileError: there is no complete model.
        ConfigError: events are to be taken, and the model does not count them.
    """

    def __init__(
        self,
        source: ModelSource,
        cold_start: ColdStart,
        reload_seconds: float,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        feed: NewFeed | None = None,
    ) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self._source = source
        self._cold_start = cold_start
        self._reload_seconds = reload_seconds
        self._batches: Batches | None = None
        self.feed = feed(self.metrics) if feed else None
        model = source.load()
        if self.feed is not None:
            model = self.feed.switch_to(self.feed.follow(model), model.version)
        self._use(model)

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not before `running`, and not after."""
        is_broken = self.feed is not None and self.feed.is_broken
        return self._batches is not None and not is_broken

    @property
    def about(self) -> dict[str, str | float]:
        """The model in use, and with a feed up to when clicks count."""
        about: dict[str, str | float] = {
            "version": self.model.version,
            "window": self.model.window,
        }
        if self.feed is not None:
            about["counted_until"] = self.feed.counted_until
        return about

    async def answer(self, requests: Sequence[SessionRequest]) -> list[Result]:
        """Answer requests, together with others that wait.

        Raises:
            DataError: together they exceed a limit.
            Overloaded: too much waits already.
        """
        results: list[Result] = []
        for each in await self._ask(requests):
            assert not isinstance(each, SimilarAnswer)
            kind = "error" if isinstance(each, DayaheadError) else ("known", "cold")[each.is_cold]
            self.metrics.sessions.labels(kind).inc()
            results.append(each)
        return results

    async def similar(self, request: SimilarRequest) -> SimilarAnswer | DayaheadError:
        """Answer with the items most like one; raises as `answer` does."""
        [result] = await self._ask([request])
        assert not isinstance(result, Answer)
        return result

    async def _ask(self, requests: Sequence[Request]) -> list[AnyResult]:
        assert self._batches is not None, "a request outside of running()"
        self.limits.check(requests, self._n_items)
        return await self._batches.ask(requests)

    async def ingest(self, events: Sequence[LiveEvent]) -> IngestResult:
        """Take events; they are on disk when it returns.

        Raises:
            DataError: there are too many, or one has too many fields.
            OSError: they could not be written.
            Overloaded: too many wait to be written.
        """
        assert self.feed is not None, "ingest() without a feed"
        self.limits.check_events(events)
        return await self.feed.ingest(events)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests and look for new models; at the end, answer those that still wait."""
        batches: Batches = MicroBatches(self._answer, self._room())
        self._batches = batches
        answering = asyncio.create_task(batches.run())
        beside = [asyncio.create_task(self._watch(batches))]
        async with contextlib.AsyncExitStack() as stack:
            if self.feed is not None:
                await stack.enter_async_context(self.feed.running())
                beside.append(asyncio.create_task(self._count(batches, self.feed)))
            try:
                yield
            finally:
                for task in beside:
                    task.cancel()
                batches.close()
                await answering
                self._batches = None

    def _room(self) -> Room[Request]:
        return Room(
            cost=lambda request: n_entries_of(request, self._n_items),
            max_batch=MAX_BATCH,
            batch_cost=PASS_ENTRIES,
            waiting_cost=self.limits.waiting,
            small_cost=SMALL_ENTRIES,
        )

    @property
    def _n_items(self) -> int:
        return len(self.model.recommender.stored.candidates)

    def _answer(self, requests: Sequence[Request]) -> list[AnyResult]:
        self.metrics.batches.observe(len(requests))
        # The model is read once, so that one model answers all of them.
        model = self.model if self.feed is None else self.feed.current()
        return answer_requests(model, requests, self._cold_start)

    def _use(self, model: LoadedModel) -> None:
        self.model = model
        """The one in use."""
        self.metrics.set_model(model.version, model.window)

    async def _watch(self, batches: Batches) -> None:
        """Look for new models, and replace the one in use by them."""
        while True:
            await asyncio.sleep(self._reload_seconds)
            await self._look(batches)

    async def _look(self, batches: Batches) -> None:
        version = self.model.version
        try:
            # Loading takes seconds; meanwhile the event loop goes on with requests.
            found = await asyncio.to_thread(self._source.load_if_new)
            if found is None:
                return
            if (feed := self.feed) is not None:
                found = await self._with_events(feed, found, batches)
        except Exception as error:  # noqa: BLE001 - whatever it is, the old model keeps serving
            self.metrics.reloads.labels("refused").inc()
            log.warning("a new model is refused, %s keeps serving: %s", version, first_line(error))
            return
        log.info("model %s follows %s", found.version, version)
        self._use(found)
        self.metrics.reloads.labels("served").inc()

    async def _with_events(
        self, feed: LiveFeed, found: LoadedModel, batches: Batches
    ) -> LoadedModel:
        """Let a new model count the log, and answer with it."""
        try:
            counted = await asyncio.to_thread(feed.follow, found)
            return await batches.between(partial(feed.switch_to, counted, found.version))
        except ConfigError:  # it counts no clicks
            raise
        except Exception:
            self._source.forget()
            raise

    async def _count(self, batches: Batches, feed: LiveFeed) -> None:
        """Count the clicks of each tick, also while nobody asks; prune the log now and then."""
        is_broken = False
        for second in itertools.count():
            await asyncio.sleep(1)
            try:
                await batches.between(feed.advance)
            except Exception:
                if not is_broken:
                    log.exception("clicks could not be counted")
                is_broken = True
            try:
                if second % PRUNE_SECONDS == 0:
                    await asyncio.to_thread(feed.prune)
            except OSError as error:
                log.warning("old events stay in the log: %s", error)
            except Exception:
                log.exception("old events could not be removed from the log")
