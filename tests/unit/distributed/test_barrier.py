"""Processes wait for each other, and for none that has ended."""

import os
import time
from multiprocessing import get_context
from threading import Thread
from types import SimpleNamespace

import pytest

from dayahead.distributed import barrier as barrier_module
from dayahead.distributed.barrier import SharedFile
from support.barriers import barriers, new_pipe
from support.waiting import wait_until


@pytest.fixture
def child():
    """A process that lives until its pipe is written to."""
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=reader.recv)
    process.start()
    yield SimpleNamespace(process=process, end=lambda: (writer.send(0), process.join()))
    process.kill()
    process.join()


def test_all_wait_for_the_last():
    first, *others = barriers([os.getpid()] * 3)
    passed = []
    threads = [Thread(target=lambda each=each: passed.append(each.wait())) for each in others]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert passed == []
    first.wait()
    for thread in threads:
        thread.join()
    assert len(passed) == 2


def test_a_process_that_is_ahead_is_not_taken_for_two():
    first, second, third = barriers([os.getpid()] * 3)
    passed = []
    fast = Thread(target=lambda: [passed.append(first.wait()) for _ in range(2)])
    slow = Thread(target=lambda: [passed.append(second.wait()) for _ in range(2)])
    fast.start()
    slow.start()
    third.wait()
    wait_until(lambda: len(passed) == 2)  # both come again, and third may not pass with these two
    own = Thread(target=third.wait)
    own.start()
    own.join()
    fast.join()
    slow.join()
    assert len(passed) == 4


def test_a_process_that_has_ended_is_named(child):
    own, _ = barriers([os.getpid(), child.process.pid])
    child.end()
    with pytest.raises(RuntimeError, match="process 1 has ended"):
        own.wait()


def test_a_process_that_ended_after_the_barrier_has_reached_it(child):
    own, other = barriers([os.getpid(), child.process.pid])
    thread = Thread(target=other.wait)
    thread.start()
    child.end()
    own.wait()
    thread.join()
    with pytest.raises(RuntimeError, match="process 1 has ended"):
        own.wait()


def test_nobody_is_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(barrier_module, "TIMEOUT", barrier_module.TIMEOUT * 0)
    own, _ = barriers([os.getpid()] * 2)
    with pytest.raises(RuntimeError, match="process 1 did not come within"):
        own.wait()


def test_a_file_of_another_machine_is_not_opened():
    reader, writer = new_pipe()
    with reader, writer, pytest.raises(FileNotFoundError):
        SharedFile(SharedFile.of(reader).path, SharedFile.of(writer).path).open("r")
