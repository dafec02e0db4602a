"""Events of a file that another process appends to."""

import asyncio
import json

import pytest

from dayahead.serve import event_file
from dayahead.serve.event_file import EventFile
from dayahead.serve.messages import IngestResult, Refused
from dayahead.serve.micro_batches import Overloaded


def line(name, **more):
    event = {"event_id": name, "session_id": "s", "item_id": 1, "event_time": 1.5, **more}
    return json.dumps(event) + "\n"


class Taker:
    """Takes events, after it has raised the failures given."""

    def __init__(self, *failures):
        self.failures = [*failures]
        self.taken = []

    async def __call__(self, events):
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append([each.event_id for each in events])
        refused = [Refused(each.event_id, "too old") for each in events if each.item_id == 99]
        return IngestResult(len(events) - len(refused), 0, refused)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(event_file, "PAUSE", 0.001)


class Over(Exception):  # noqa: N818
    """No step is left."""


def over():
    raise Over


class Followed(EventFile):
    """A file in which the next step is made whenever nothing more is read."""

    steps = iter(())

    def _next_lines(self):
        lines = super()._next_lines()
        if not lines:
            next(self.steps, over)()
        return lines


def followed(path, take, *steps):
    """Follow a file while `steps` are made, each once what is there has been read."""
    file = Followed(path)
    file.steps = iter(steps)
    with pytest.raises(Over):
        asyncio.run(file.follow(take))
    return take.taken


def appending(path, text):
    def step():
        with path.open("a") as file:
            file.write(text)

    return step


def test_lines_are_read_as_they_are_appended(tmp_path):
    path, whole = tmp_path / "events.jsonl", line("c")
    steps = [
        lambda: None,  # there is no file yet
        appending(path, line("a") + line("b")),
        appending(path, whole[:10]),
        appending(path, whole[10:]),
    ]
    assert followed(path, Taker(), *steps) == [["a", "b"], ["c"]]


def test_few_lines_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(event_file, "AT_ONCE", 2)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(map(line, "abcde")))
    assert followed(path, Taker()) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_new_file_is_read_from_its_start(tmp_path):
    path = tmp_path / "events.jsonl"
    steps = [appending(path, line("a") + line("b")), lambda: path.write_text(line("c"))]
    assert followed(path, Taker(), *steps) == [["a", "b"], ["c"]]


def test_a_file_that_cannot_be_read_is_named_each_time(tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    steps = [
        path.mkdir,
        lambda: None,
        path.rmdir,
        appending(path, line("a")),
        path.unlink,
        path.mkdir,
    ]
    assert followed(path, Taker(), *steps) == [["a"]]
    assert caplog.text.count("events cannot be read") == 2


def test_lines_that_are_no_events_are_named_and_left_out(tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    path.write_text(line("a") + '{"itm_id": 1}\n' + "text\n" + line("b", item_id=99) + line("c"))
    assert followed(path, Taker()) == [["a", "b", "c"]]
    assert "events.jsonl:2: item_id: Field required; there is itm_id instead" in caplog.text
    assert "events.jsonl:3: : Invalid JSON" in caplog.text
    assert "events.jsonl: 1 events are refused; the first, b: too old" in caplog.text


def test_events_that_cannot_be_written_are_tried_again(tmp_path, monkeypatch):
    async def at_once(seconds):
        await real(0.001)

    real = asyncio.sleep
    path = tmp_path / "events.jsonl"
    path.write_text(line("a"))
    take = Taker(OSError("full"), Overloaded(), OSError("full"))

    async def run():
        task = asyncio.create_task(EventFile(path).follow(take))
        monkeypatch.setattr(event_file.asyncio, "sleep", at_once)
        while not take.taken:
            await real(0.001)
        task.cancel()

    asyncio.run(run())
    assert take.taken == [["a"]]
