"""What tests of fetching share: a file, its server's misbehaviour, and what was asked of it."""

import hashlib
import random
from collections.abc import Callable

from dayahead.download.sources import fetched, listed
from support.sources import Answer, Served

BODY = random.Random(1).randbytes(102_400)
"""Thirteen segments of SEGMENT bytes, the last of half that."""
SEGMENT = 8192
STARTS = set(range(0, len(BODY), SEGMENT))
SHA256 = hashlib.sha256(BODY).hexdigest()


def fetch(url: str, sha256: str | None = None) -> bytes:
    (file,) = listed([url], None)
    path, found = fetched(file, sha256)
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def starts_asked(served: Served) -> list[int]:
    return sorted(int(asked[len("bytes=") :].split("-")[0]) for _, asked in served.asked if asked)


def of_gets(change: Callable[[Answer], None]) -> Callable[[Answer], None]:
    return lambda answer: change(answer) if answer.command == "GET" else None


def cut_at_random(seed: int, share: float) -> Callable[[Answer], None]:
    """Break off that share of the answers anywhere."""
    dice = random.Random(seed)

    def cut(answer: Answer) -> None:
        if dice.random() < share:
            answer.body = answer.body[: dice.randrange(len(answer.body))]

    return of_gets(cut)


def answering(status: int, times: float, **headers: str) -> Callable[[Answer], None]:
    """Answer the first requests with an error."""
    left = [None] * int(times)

    def fail(answer: Answer) -> None:
        if left:
            left.pop()
            answer.status, answer.body = status, b"sorry"
            answer.headers = {"Content-Length": "5", **headers}

    return fail
