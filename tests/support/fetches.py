"""Helpers of download tests: a file, faulty server behaviour, and the requests made."""

import hashlib
import random
from collections.abc import Callable

from dayahead.download.sources import fetch, list_files
from support.sources import Answer, Served

BODY = random.Random(1).randbytes(102_400)
"""Thirteen segments of SEGMENT bytes, the last of half that."""
SEGMENT = 8192
STARTS = set(range(0, len(BODY), SEGMENT))
SHA256 = hashlib.sha256(BODY).hexdigest()


def fetch_bytes(url: str, sha256: str | None = None) -> bytes:
    (file,) = list_files([url], None)
    path, found = fetch(file, sha256)
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def segment_starts(served: Served) -> list[int]:
    """First bytes of all range requests."""
    ranges = [wanted.removeprefix("bytes=") for _, wanted in served.requests if wanted]
    return sorted(int(wanted.split("-")[0]) for wanted in ranges)


def on_get(change: Callable[[Answer], None]) -> Callable[[Answer], None]:
    return lambda answer: change(answer) if answer.command == "GET" else None


def cut_at_random(seed: int, share: float) -> Callable[[Answer], None]:
    """Cut off that share of the responses anywhere."""
    rng = random.Random(seed)

    def cut(answer: Answer) -> None:
        if rng.random() < share:
            answer.body = answer.body[: rng.randrange(len(answer.body))]

    return on_get(cut)


def fail_with(status: int, times: int, **headers: str) -> Callable[[Answer], None]:
    """Answer the first `times` requests with an error."""
    left = [None] * times

    def fail(answer: Answer) -> None:
        if left:
            left.pop()
            answer.status, answer.body = status, b"sorry"
            answer.headers = {"Content-Length": "5", **headers}

    return fail
