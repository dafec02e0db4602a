"""The model in use, the requests that wait for it, and its replacement while it serves."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from dayahead.core.errors import ConfigError, DayaheadError, first_line
from dayahead.live.list_log import ListLog
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
from dayahead.serve.trial import A, B, Trial

MAX_BATCH = 256
"""Maximum number of sessions in one pass of the model."""
PASS_ENTRIES = 50_000
"""Maximum number of entries of the sessions in one pass, so that it ends soon."""
SMALL_ENTRIES = 2_000
"""Maximum number of entries of a small request, accepted even when half of the queue is full."""
PRUNE_SECONDS = 3600
"""Seconds between two removals of old events."""
Answered = tuple[str, AnyResult]
"""A result, and the variant that gave it."""
Batches = MicroBatches[Request, Answered]
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
        trial: another model, which answers some of the sessions.
        lists: where the lists of sessions with an id are logged.

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
        trial: Trial | None = None,
        lists: ListLog | None = None,
    ) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self._sources = {A: source} | ({B: trial.source} if trial else {})
        self._trial = trial
        self._lists = lists
        self._cold_start = cold_start
        self._reload_seconds = reload_seconds
        self._batches: Batches | None = None
        self._has_failed = False
        """Whether the model on trial has failed the last time it was asked."""
        self.feed = feed(self.metrics) if feed else None
        self.models: dict[str, LoadedModel] = {}
        """Those in use, by variant."""
        for variant, each in self._sources.items():
            model = each.load()
            if self.feed is not None:
                model = self.feed.switch_to(self.feed.follow(model), model.version, variant)
            self._use(variant, model)
        if lists is not None:
            lists.on_lost = self.metrics.lists.labels("lost").inc

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not before `running`, and not after."""
        is_broken = self.feed is not None and self.feed.is_broken
        return self._batches is not None and not is_broken

    @property
    def model(self) -> LoadedModel:
        """The model in use; on a trial, that of A."""
        return self.models[A]

    @property
    def about(self) -> dict[str, str | float]:
        """The model in use, with a feed up to when clicks count, and a trial's other model."""
        about: dict[str, str | float] = {
            "version": self.model.version,
            "window": self.model.window,
        }
        if self.feed is not None:
            about["counted_until"] = self.feed.counted_until
        if self._trial is not None:
            about |= {"against": self.models[B].version, "share": self._trial.share}
        return about

    async def answer(self, requests: Sequence[SessionRequest]) -> list[Result]:
        """Answer requests, together with others that wait.

        Raises:
            DataError: together they exceed a limit.
            Overloaded: too much waits already.
        """
        results: list[Result] = []
        for request, (variant, each) in zip(requests, await self._ask(requests), strict=True):
            assert not isinstance(each, SimilarAnswer)
            kind = "error" if isinstance(each, DayaheadError) else ("known", "cold")[each.is_cold]
            self.metrics.sessions.labels(kind).inc()
            if self._lists is not None and isinstance(each, Answer):
                self._log_list(self._lists, request, variant, each)
            results.append(each)
        return results

    def _log_list(
        self, lists: ListLog, request: SessionRequest, variant: str, answer: Answer
    ) -> None:
        if request.session_id is None:
            self.metrics.lists.labels("unnamed").inc()
            return
        self.metrics.lists.labels("logged").inc()
        items = [each.item for each in answer.items]
        lists.add(request.session_id, request.user_id, variant, answer.model.version, items)

    def _variant_of(self, request: Request) -> str:
        if self._trial is None or isinstance(request, SimilarRequest):
            return A
        return self._trial.variant_of(request.session_id)

    async def similar(self, request: SimilarRequest) -> SimilarAnswer | DayaheadError:
        """Answer with the items most like one; raises as `answer` does."""
        [(_, result)] = await self._ask([request])
        assert not isinstance(result, Answer)
        return result

    async def _ask(self, requests: Sequence[Request]) -> list[Answered]:
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
        return max(len(each.recommender.stored.candidates) for each in self.models.values())

    def _answer(self, requests: Sequence[Request]) -> list[Answered]:
        self.metrics.batches.observe(len(requests))
        of_b = [each for each in requests if self._variant_of(each) == B]
        by_b = iter(self._tried(of_b) if of_b else [])
        # None: B has none, so that A answers.
        tried = [next(by_b, None) if self._variant_of(each) == B else None for each in requests]
        rest = [each for each, result in zip(requests, tried, strict=True) if result is None]
        by_a = iter(self._answered_by(A, rest) if rest else [])
        return [(A, next(by_a)) if result is None else (B, result) for result in tried]

    def _tried(self, requests: Sequence[Request]) -> list[AnyResult]:
        """Return the answers of the model on trial; none if it fails."""
        try:
            found = self._answered_by(B, requests)
        except Exception:
            self.metrics.fallbacks.inc(len(requests))
            if not self._has_failed:
                names = self.models[B].version, self.model.version
                log.exception("model %s on trial has failed, %s answers its sessions", *names)
            self._has_failed = True
            return []
        self._has_failed = False
        return found

    def _answered_by(self, variant: str, requests: Sequence[Request]) -> list[AnyResult]:
        # The model is read once, so that one model answers all of them.
        model = self.models[variant] if self.feed is None else self.feed.current(variant)
        return answer_requests(model, requests, self._cold_start)

    def _use(self, variant: str, model: LoadedModel) -> None:
        self.models[variant] = model
        self.metrics.set_models((each.version, each.window) for each in self.models.values())

    async def _watch(self, batches: Batches) -> None:
        """Look for new models, and replace those in use by them."""
        while True:
            await asyncio.sleep(self._reload_seconds)
            for variant in self._sources:
                await self._look(variant, batches)

    async def _look(self, variant: str, batches: Batches) -> None:
        version = self.models[variant].version
        try:
            # Loading takes seconds; meanwhile the event loop goes on with requests.
            found = await asyncio.to_thread(self._sources[variant].load_if_new)
            if found is None:
                return
            if (feed := self.feed) is not None:
                found = await self._with_events(feed, variant, found, batches)
        except Exception as error:  # noqa: BLE001 - whatever it is, the old model keeps serving
            self.metrics.reloads.labels("refused").inc()
            log.warning("a new model is refused, %s keeps serving: %s", version, first_line(error))
            return
        log.info("model %s follows %s", found.version, version)
        self._use(variant, found)
        self.metrics.reloads.labels("served").inc()

    async def _with_events(
        self, feed: LiveFeed, variant: str, found: LoadedModel, batches: Batches
    ) -> LoadedModel:
        """Let a new model count the log, and answer with it."""
        try:
            counted = await asyncio.to_thread(feed.follow, found)
            return await batches.between(partial(feed.switch_to, counted, found.version, variant))
        except ConfigError:  # it counts no clicks
            raise
        except Exception:
            self._sources[variant].forget()
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
