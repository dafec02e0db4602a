"""Requests that arrive while the model is busy are answered together."""

import asyncio
import threading
from itertools import chain

import pytest

from dayahead.serve.micro_batches import MicroBatches, Overloaded, Room


class Model:
    """Doubles numbers; can be held up, and cannot double 13."""

    def __init__(self):
        self.batches = []
        self.is_free = threading.Event()
        self.is_free.set()

    def __call__(self, numbers):
        self.is_free.wait(60)
        self.batches.append(list(numbers))
        if 13 in numbers:
            raise RuntimeError("13 cannot be doubled")
        return [2 * number for number in numbers]


def room(max_batch, **costs):
    """Room for requests that cost 1 each, or what `costs` say."""
    usual = {"cost": lambda _: 1, "batch_cost": 1_000, "waiting_cost": 100, "small_cost": 100}
    return Room(max_batch=max_batch, **usual | costs)


def serve(work, max_batch=4, max_waiting=100, **costs):
    """Run `work(batches, model)` beside the batches; return what it returns, and the batches."""

    async def main():
        model = Model()
        batches = MicroBatches(model, room(max_batch, waiting_cost=max_waiting, **costs))
        running = asyncio.create_task(batches.run())
        result = await work(batches, model)
        batches.close()
        await asyncio.wait_for(running, 60)
        return result, model.batches

    return asyncio.run(main())


async def held_up(batches, model, *calls):
    """Ask while the model is held up; return the tasks, all of which wait."""
    model.is_free.clear()
    tasks = [asyncio.create_task(batches.ask(numbers)) for numbers in calls]
    await asyncio.sleep(0.05)
    return tasks


def test_an_idle_model_takes_a_request_alone():
    async def work(batches, _model):
        return [(await batches.ask([number]))[0] for number in (1, 2, 3)]

    assert serve(work) == ([2, 4, 6], [[1], [2], [3]])


def test_what_waits_is_answered_together_in_order_and_at_most_so_many():
    async def work(batches, model):
        tasks = await held_up(batches, model, *([number] for number in range(7)))
        model.is_free.set()
        return [found for [found] in await asyncio.gather(*tasks)]

    answers, taken = serve(work)
    assert answers == [0, 2, 4, 6, 8, 10, 12]
    assert list(chain.from_iterable(taken)) == list(range(7))
    assert max(map(len, taken)) == 4


def test_a_request_that_fails_fails_no_other():
    async def work(batches, model):
        tasks = await held_up(batches, model, [1], [13], [3])
        model.is_free.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (first, failed, last), _ = serve(work)
    assert (first, last) == ([2], [6])
    assert isinstance(failed, RuntimeError)


def test_too_many_are_refused_at_once_and_later_ones_are_answered():
    async def work(batches, model):
        tasks = await held_up(batches, model, [0], [1], [2])
        with pytest.raises(Overloaded):
            await batches.ask([4, 5, 6, 7])
        model.is_free.set()
        await asyncio.gather(*tasks)
        return await batches.ask([8])

    assert serve(work, max_waiting=3)[0] == [16]


def test_a_client_that_has_gone_is_not_answered():
    async def work(batches, model):
        [first] = await held_up(batches, model, [1])
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
        batches = MicroBatches(model, room(2))
        running = asyncio.create_task(batches.run())
        tasks = await held_up(batches, model, *([number] for number in range(5)))
        batches.close()
        model.is_free.set()
        await asyncio.wait_for(running, 60)
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [[0], [2], [4], [6], [8]]


def test_who_asks_for_little_waits_for_no_ones_thousands():
    async def work(batches, model):
        [first] = await held_up(batches, model, [0])
        many = [asyncio.create_task(batches.ask([*range(start, start + 8)])) for start in (20, 40)]
        few = asyncio.create_task(batches.ask([1]))
        await asyncio.sleep(0)
        model.is_free.set()
        return await asyncio.gather(first, *many, few)

    answers, taken = serve(work)
    assert taken[1] == [20, 40, 1, 21]
    assert answers == [[0], [2 * n for n in range(20, 28)], [2 * n for n in range(40, 48)], [2]]


def test_a_batch_is_limited_by_its_cost_and_a_dear_request_goes_alone():
    async def work(batches, model):
        tasks = await held_up(batches, model, [1])
        tasks += [asyncio.create_task(batches.ask([n])) for n in (5, 6, 30, 2, 3)]
        await asyncio.sleep(0.05)
        model.is_free.set()
        return await asyncio.gather(*tasks)

    _, taken = serve(work, max_batch=10, cost=lambda number: number, batch_cost=11)
    assert taken == [[1], [5, 6], [30], [2, 3]]


def test_what_may_wait_is_a_cost_and_half_of_it_is_for_small_ones():
    async def work(batches, model):
        tasks = await held_up(batches, model, [1], [20], [25])
        with pytest.raises(Overloaded):
            await batches.ask([6])
        tasks += [asyncio.create_task(batches.ask([5])) for _ in range(11)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await batches.ask([1])
        model.is_free.set()
        await asyncio.gather(*tasks)
        return await batches.ask([50])

    costs = {"cost": lambda number: number, "batch_cost": 10, "small_cost": 5}
    assert serve(work, **costs)[0] == [100]
