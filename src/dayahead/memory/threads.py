"""Work in several threads, in which compiled loops run side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from dayahead.core.phases import phase

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Part], Result], parts: Sequence[Part], name: str
) -> Iterator[Result]:
    """Yield the result of each part, in order, as a phase of this name.

    At most one result per thread is held: what is yielded must not depend on other parts.
    """
    n_threads = min(torch.get_num_threads(), len(parts))
    if n_threads <= 1:
        for part in parts:
            with phase(name):
                result = work(part)
            yield result
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for start in range(0, len(parts), n_threads):
            with phase(name):
                results = [*pool.map(work, parts[start : start + n_threads])]
            yield from results


def side_by_side(work: Callable[..., Result], *arguments: Iterable[Any]) -> list[Result]:
    """Call `work` with the first of all arguments, with the second, ..., each in a thread."""
    calls = [*zip(*arguments, strict=True)]
    if len(calls) == 1:
        return [work(*calls[0])]
    with ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(lambda call: work(*call), calls)]


def in_background(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start some work in a thread of its own, and return a function that waits for its result."""
    pool = ThreadPoolExecutor(1)
    result = pool.submit(work).result
    pool.shutdown(wait=False)  # the thread ends with the work: a process may be forked later
    return result


@contextmanager
def single_threads(n_most: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a `map` with as many threads as the process has, `n_most` at most.

    torch computes with one thread in each, so that its sums do not depend on their number.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if min(n_threads, n_most) <= 1:
            yield map
        else:
            with ThreadPoolExecutor(min(n_threads, n_most)) as pool:
                yield pool.map
    finally:
        torch.set_num_threads(n_threads)
