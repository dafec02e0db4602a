"""Parts are worked on by as many threads as the process has; results keep their order."""

import threading
import time

import pytest
import torch

from dayahead.core.phases import Stopwatch
from dayahead.memory.threads import in_threads


@pytest.fixture(params=[1, 3])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_whichever_is_ready_first(n_threads):
    def work(part):
        time.sleep(0.01 * (part % 2))
        return part, threading.get_ident()

    found = [*in_threads(work, [*reversed(range(7))], "work")]
    assert [part for part, _ in found] == [6, 5, 4, 3, 2, 1, 0]
    assert len({thread for _, thread in found}) <= n_threads


def test_as_many_parts_are_worked_on_at_once_as_there_are_threads(n_threads):
    meeting = threading.Barrier(n_threads, timeout=60)
    assert [*in_threads(lambda part: meeting.wait() >= 0, range(n_threads), "work")]


def test_no_more_is_done_than_is_taken(n_threads):
    done = []
    results = in_threads(done.append, range(9), "work")
    next(results)
    assert len(done) == n_threads


def test_an_error_of_a_part_is_raised(n_threads):
    with pytest.raises(ZeroDivisionError):
        [*in_threads(lambda part: 1 // part, [1, 0, 1], "work")]


def test_work_counts_as_a_phase_and_what_is_done_with_it_does_not(n_threads):
    watch = Stopwatch()
    with watch.running():
        for _ in in_threads(lambda part: None, range(6), "work"):
            time.sleep(0.05)
    [_, row] = watch.rows()
    assert row.phase == "work"
    assert row.calls == 6 / n_threads
    assert row.seconds < 0.3


def test_no_parts_have_no_results(n_threads):
    assert not [*in_threads(lambda part: part, [], "work")]
