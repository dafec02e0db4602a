"""A program that does named works on request, so that programs of several environments take turns.

Both ends are here: `answer_requests` in the program, `Worker` in the benchmark that starts it.
Nothing but the standard library is imported: a peer's environment has none of our packages.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Work = Callable[..., tuple[int, float]]
"""Does the work; returns the number of sessions, and what tells whether it is right, as a loss."""


@dataclass(frozen=True)
class Answer:
    """What a program has done."""

    seconds: float
    sessions: int
    result: float
    """Loss or recall."""
    user_seconds: float = 0.0
    """Of the CPU, over all threads; other programs on the machine hardly change them."""


class WorkerError(Exception):
    """A program ended, or answered nothing that can be read."""


def settings() -> dict[str, Any]:
    """Return the settings that this program was started with."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def answer_requests(works: Mapping[str, Work]) -> None:
    """Do each work that the standard input asks for until it ends.

    Each request is a line of JSON, the name of a work and its arguments; each answer is one too,
    an Answer.
    """
    with os.fdopen(int(sys.argv[2]), "w") as answers:
        print(json.dumps({"works": list(works)}), file=answers, flush=True)
        for name, arguments in map(json.loads, sys.stdin):
            start, user = time.perf_counter(), os.times().user
            sessions, result = works[name](**arguments)
            spent = time.perf_counter() - start, os.times().user - user
            answer = Answer(spent[0], sessions, float(result), spent[1])
            print(json.dumps(asdict(answer)), file=answers, flush=True)


class Worker:
    """A running program that calls `answer_requests`.

    Args:
        python: the interpreter of its environment.
        program: its file.
        given: its settings, for JSON.
        log: file for what it prints.

    Raises:
        WorkerError: it ended before it was ready.
    """

    def __init__(
        self, python: Sequence[str | Path], program: Path, given: Mapping[str, Any], log: Path
    ) -> None:
        self.name = program.stem
        self.log = log
        read, write = os.pipe()
        with log.open("w") as messages:
            self.process = subprocess.Popen(
                [*python, program, json.dumps(given), str(write)],
                stdin=subprocess.PIPE,
                stdout=messages,
                stderr=messages,
                pass_fds=[write],
                text=True,
            )
        os.close(write)
        self.answers = os.fdopen(read)
        try:
            self.works: list[str] = self._answer()["works"]
        except BaseException:
            self.close()
            raise

    def do(self, work: str, **arguments: object) -> Answer:
        """Have it do a work, with arguments for JSON, and wait.

        Raises:
            WorkerError: it ended before it was done.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: the missing answer says why
            print(json.dumps([work, arguments]), file=self.process.stdin, flush=True)
        return Answer(**self._answer())

    def close(self) -> None:
        """End it: a program whose input ends has nothing left to do."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.answers.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()

    def _answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            status = self.process.wait()
            said = self.log.read_text(errors="replace").strip().splitlines() or ["nothing"]
            raise WorkerError(
                f"{self.name}: expected an answer, but it ended with exit status {status}; its "
                f"last line: {said[-1]}; all of them: {self.log}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer
