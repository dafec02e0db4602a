"""Concurrent requests, answered together: what comes while the model is busy waits as a batch."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
log = logging.getLogger(__name__)


class Overloaded(Exception):  # noqa: N818
    """More requests wait than may."""


class MicroBatches(Generic[In, Out]):
    """Answers requests in batches on one thread, in the order in which they came.

    Nothing is waited for: an idle model takes the first request alone.

    Args:
        answer: gives an answer for each request of a batch.
        max_batch: requests of a batch.
        max_waiting: requests that may wait.
    """

    def __init__(
        self, answer: Callable[[Sequence[In]], list[Out]], max_batch: int, max_waiting: int
    ) -> None:
        self._answer = answer
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._is_needed = asyncio.Event()
        self._is_closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def ask(self, requests: Sequence[In]) -> list[Out]:
        """Return the answers to some requests.

        Raises:
            Overloaded: too many wait already.
        """
        if len(self._waiting) + len(requests) > self._max_waiting:
            raise Overloaded
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        self._waiting.extend(zip(requests, futures, strict=True))
        self._is_needed.set()
        return list(await asyncio.gather(*futures))

    async def run(self) -> None:
        """Answer requests until `close`, and then those that still wait."""
        while True:
            if not self._waiting:
                if self._is_closing:
                    break
                self._is_needed.clear()
                await self._is_needed.wait()
                continue
            n_taken = min(self._max_batch, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(n_taken)]
            # Clients that have gone away need no answer.
            await self._answer_batch([each for each in taken if not each[1].done()])
        self._thread.shutdown()

    def close(self) -> None:
        """Let `run` end once nothing waits."""
        self._is_closing = True
        self._is_needed.set()

    async def _answer_batch(self, batch: list[tuple[In, "asyncio.Future[Out]"]]) -> None:
        if not batch:
            return
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._answer, [each for each, _ in batch])
        await asyncio.wait([work])
        error = work.exception()
        if error is not None and len(batch) > 1:  # one request must not fail the others
            for each in batch:
                await self._answer_batch([each])
        elif error is not None:
            log.error("a request failed", exc_info=error)
            if not batch[0][1].done():
                batch[0][1].set_exception(error)
        else:
            for (_, future), answer in zip(batch, work.result(), strict=True):
                if not future.done():
                    future.set_result(answer)
