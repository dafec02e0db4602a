"""Requests that arrive while the model is busy are answered together."""

import asyncio
import threading
from itertools import chain

import pytest

from dayahead.serve.micro_batches import MicroBatches, Overloaded


class Model:
    """Doubles numbers; can be held up, and cannot double 13."""

    def __init__(self):
        self.batches = []
        self.is_free = threading.Event()
        self.is_free.set()

    def __call__(self, numbers):
        self.is_free.wait(10)
        self.batches.append(list(numbers))
        if 13 in numbers:
            raise RuntimeError("13 cannot be doubled")
        return [2 * number for number in numbers]


def serve(work, max_batch=4, max_waiting=100):
    """Run `work(batches, model)` beside the batches; return what it returns, and the batches."""

    async def main():
        model = Model()
        batches = MicroBatches(model, max_batch, max_waiting)
        running = asyncio.create_task(batches.run())
        result = await work(batches, model)
        batches.close()
        await asyncio.wait_for(running, 10)
        return result, model.batches

    return asyncio.run(main())


def test_an_idle_model_takes_a_request_alone():
    async def work(batches, _model):
        return [(await batches.ask([number]))[0] for number in (1, 2, 3)]

    assert serve(work) == ([2, 4, 6], [[1], [2], [3]])


def test_what_waits_is_answered_together_in_order_and_at_most_so_many():
    async def work(batches, model):
        model.is_free.clear()
        asked = [asyncio.create_task(batches.ask([number])) for number in range(7)]
        await asyncio.sleep(0.05)
        model.is_free.set()
        return [found for [found] in await asyncio.gather(*asked)]

    answers, taken = serve(work)
    assert answers == [0, 2, 4, 6, 8, 10, 12]
    assert list(chain.from_iterable(taken)) == list(range(7))
    assert max(map(len, taken)) == 4


def test_a_request_that_fails_fails_no_other():
    async def work(batches, model):
        model.is_free.clear()
        asked = [asyncio.create_task(batches.ask([number])) for number in (1, 13, 3)]
        await asyncio.sleep(0.05)
        model.is_free.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    (first, failed, last), _ = serve(work)
    assert (first, last) == ([2], [6])
    assert isinstance(failed, RuntimeError)


def test_too_many_are_refused_at_once_and_later_ones_are_answered():
    async def work(batches, model):
        model.is_free.clear()
        asked = [asyncio.create_task(batches.ask([number])) for number in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await batches.ask([4, 5, 6, 7])
        model.is_free.set()
        await asyncio.gather(*asked)
        return await batches.ask([8])

    assert serve(work, max_waiting=3)[0] == [16]


def test_a_client_that_has_gone_is_not_answered():
    async def work(batches, model):
        model.is_free.clear()
        first = asyncio.create_task(batches.ask([1]))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batches.ask([2]))
        await asyncio.sleep(0)
        gone.cancel()
        last = asyncio.create_task(batches.ask([3]))
        await asyncio.sleep(0.05)
        model.is_free.set()
        return await asyncio.gather(first, last)

    assert serve(work) == ([[2], [6]], [[1], [3]])


def test_what_waits_at_the_end_is_answered():
    async def main():
        model = Model()
        model.is_free.clear()
        batches = MicroBatches(model, 2, 100)
        running = asyncio.create_task(batches.run())
        asked = [asyncio.create_task(batches.ask([number])) for number in range(5)]
        await asyncio.sleep(0.05)
        batches.close()
        model.is_free.set()
        await asyncio.wait_for(running, 10)
        return await asyncio.gather(*asked)

    assert asyncio.run(main()) == [[0], [2], [4], [6], [8]]
