"""Threads for transfers, which mostly wait for the remote."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
N_THREADS = 8


def run_all(pool: Executor, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function for all items and wait; the first error cancels those not yet started.

    It is raised only after running calls have ended, so that none writes after a clean-up.
    """
    futures = [pool.submit(function, item) for item in items]
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise
