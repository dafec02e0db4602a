"""The model in use, the requests that wait for it, and its replacement while it serves."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from dayahead.core.errors import DayaheadError, first_line
from dayahead.serve.answers import Result, answer_requests
from dayahead.serve.limits import Limits, n_entries_of
from dayahead.serve.messages import SessionRequest
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
log = logging.getLogger(__name__)


class Service:
    """Answers requests with the newest good model of a source.

    Args:
        source: source of models; the first one is loaded here.
        cold_start: the default where a request does not say.
        reload_seconds: seconds between checks for a new model.
        limits: limits of requests.

    Raises:
        ModelFileError: there is no complete model.
    """

    def __init__(
        self,
        source: ModelSource,
        cold_start: ColdStart,
        reload_seconds: float,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
    ) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self._source = source
        self._cold_start = cold_start
        self._reload_seconds = reload_seconds
        self._batches: MicroBatches[SessionRequest, Result] | None = None
        self._use(source.load())

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not before `running`, and not after."""
        return self._batches is not None

    async def answer(self, requests: Sequence[SessionRequest]) -> list[Result]:
        """Answer requests, together with others that wait.

        Raises:
            DataError: together they exceed a limit.
            Overloaded: too much waits already.
        """
        assert self._batches is not None, "answer() outside of running()"
        self.limits.check(requests, self._n_items)
        results = await self._batches.ask(requests)
        for each in results:
            kind = "error" if isinstance(each, DayaheadError) else ("known", "cold")[each.is_cold]
            self.metrics.sessions.labels(kind).inc()
        return results

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests and look for new models; at the end, answer those that still wait."""
        batches: MicroBatches[SessionRequest, Result] = MicroBatches(self._answer, self._room())
        self._batches = batches
        answering = asyncio.create_task(batches.run())
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            batches.close()
            await answering
            self._batches = None

    def _room(self) -> Room[SessionRequest]:
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

    def _answer(self, requests: Sequence[SessionRequest]) -> list[Result]:
        self.metrics.batches.observe(len(requests))
        # `self.model` is read once, so that one model answers the whole batch.
        return answer_requests(self.model, requests, self._cold_start)

    def _use(self, model: LoadedModel) -> None:
        self.model = model
        self.metrics.set_model(model.version, model.window)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._reload_seconds)
            try:
                # Loading takes seconds; meanwhile the event loop goes on with requests.
                found = await asyncio.to_thread(self._source.load_if_new)
            except Exception as error:  # noqa: BLE001 - whatever it is, the old model keeps serving
                self.metrics.reloads.labels("refused").inc()
                log.warning(
                    "a new model is refused, %s keeps serving: %s",
                    self.model.version,
                    first_line(error),
                )
                continue
            if found is not None:
                log.info("model %s follows %s", found.version, self.model.version)
                self._use(found)
                self.metrics.reloads.labels("served").inc()
