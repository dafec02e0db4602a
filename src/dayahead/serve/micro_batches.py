"""Micro-batching: requests that arrive while the model is busy are answered together."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
Done = TypeVar("Done")
log = logging.getLogger(__name__)


class Overloaded(Exception):  # noqa: N818
    """More work waits than is allowed."""


@dataclass(frozen=True)
class Room(Generic[In]):
    """Limits of the work that is answered at once and that may wait, as costs of requests."""

    cost: Callable[[In], int]
    """Cost of a request."""
    max_batch: int
    """Maximum number of requests in a batch."""
    batch_cost: int
    """Maximum cost of a batch; a request that costs more is answered alone."""
    waiting_cost: int
    """Maximum cost of all waiting requests."""
    small_cost: int
    """If half of `waiting_cost` already waits, only calls of at most this cost are accepted."""

    def is_free(self, waiting: int, cost: int) -> bool:
        """Whether further requests of this cost may wait."""
        is_small = cost <= self.small_cost
        return waiting + cost <= (self.waiting_cost if is_small else self.waiting_cost // 2)


@dataclass(frozen=True)
class _Waiting(Generic[In, Out]):
    request: In
    cost: int
    answer: "asyncio.Future[Out]"
    context: Context = field(default_factory=copy_context)
    """Of its caller, for the log."""


class MicroBatches(Generic[In, Out]):
    """Answers requests in batches on one thread.

    There is no delay to fill a batch: an idle model takes the first request alone. Callers take
    turns in the next batch, so a small call does not wait for thousands of requests of another.

    Args:
        answer: returns an answer for each request of a batch.
        room: limits of batches and of waiting requests.
        thread: its name.
    """

    def __init__(
        self, answer: Callable[[Sequence[In]], list[Out]], room: Room[In], thread: str = "model"
    ) -> None:
        self._answer = answer
        self._room = room
        self._askers: deque[deque[_Waiting[In, Out]]] = deque()
        self._cost = 0
        """Cost of all waiting requests."""
        self._is_needed = asyncio.Event()
        self._is_closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=thread)

    async def ask(self, requests: Sequence[In]) -> list[Out]:
        """Return the answers to some requests.

        Raises:
            Overloaded: too much waits already.
        """
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(each, self._room.cost(each), loop.create_future()) for each in requests]
        cost = sum(each.cost for each in waiting)
        if not self._room.is_free(self._cost, cost):
            raise Overloaded
        self._askers.append(deque(waiting))
        self._cost += cost
        self._is_needed.set()
        return list(await asyncio.gather(*(each.answer for each in waiting)))

    async def run(self) -> None:
        """Answer requests until `close`, and then those that still wait."""
        while True:
            if not self._askers:
                if self._is_closing:
                    break
                self._is_needed.clear()
                await self._is_needed.wait()
                continue
            # Futures of clients that have disconnected are already cancelled.
            await self._answer_batch([each for each in self._taken() if not each.answer.done()])
        self._thread.shutdown()

    def _taken(self) -> list[_Waiting[In, Out]]:
        taken: list[_Waiting[In, Out]] = []
        cost = 0
        while self._askers and len(taken) < self._room.max_batch:
            asker = self._askers[0]
            cost += asker[0].cost
            # The first request is taken whatever it costs, or it would wait forever.
            if taken and cost > self._room.batch_cost:
                break
            taken.append(asker.popleft())
            self._askers.popleft()
            if asker:
                self._askers.append(asker)
        self._cost -= sum(each.cost for each in taken)
        return taken

    async def between(self, work: Callable[[], Done]) -> Done:
        """Return what a function gives that is called on the thread between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let `run` end once nothing waits."""
        self._is_closing = True
        self._is_needed.set()

    async def _answer_batch(self, batch: list[_Waiting[In, Out]]) -> None:
        if not batch:
            return
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._answer, [each.request for each in batch])
        # Unlike `await work` this does not raise: the error is handled below.
        await asyncio.wait([work])
        error = work.exception()
        if error is not None and len(batch) > 1:  # one request must not fail the others
            for each in batch:
                await self._answer_batch([each])
        elif error is not None:
            batch[0].context.run(_log_failure, error)
            if not batch[0].answer.done():
                batch[0].answer.set_exception(error)
        else:
            for each, answer in zip(batch, work.result(), strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)


def _log_failure(error: BaseException) -> None:
    """Log the traceback of a defect; an OSError, such as a log that is away, says all in a line."""
    if isinstance(error, OSError):
        log.error("a request failed: %s", error)
    else:
        log.error("a request failed", exc_info=error)
