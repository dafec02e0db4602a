"""Helpers of download tests: a file, faulty server behaviour, and the requests made."""

import hashlib
import random
from collections.abc import Callable

from dayahead.download.sources import fetch, list_files
from support.sources import Response, Served

BODY = random.Random(1).randbytes(102_400)
"""Thirteen segments of SEGMENT bytes, the last of half that."""
SEGMENT = 8192
STARTS = set(range(0, len(BODY), SEGMENT))
SHA256 = hashlib.sha256(BODY).hexdigest()


def fetch_bytes(url: str, sha256: str | None = None) -> bytes:
    (file,) = list_files([url], None)
    source = fetch(file, sha256)
    assert source.path is not None
    content = source.path.read_bytes()
    assert source.sha256 == hashlib.sha256(content).hexdigest()
    return content


def segment_starts(served: Served) -> list[int]:
    """First bytes of all range requests."""
    ranges = [wanted.removeprefix("bytes=") for _, wanted in served.requests if wanted]
    return sorted(int(wanted.split("-")[0]) for wanted in ranges)


def on_get(change: Callable[[Response], None]) -> Callable[[Response], None]:
    return lambda response: change(response) if response.command == "GET" else None


def cut_at_random(seed: int, share: float) -> Callable[[Response], None]:
    """Cut off that share of the responses anywhere."""
    rng = random.Random(seed)

    def cut(response: Response) -> None:
        if rng.random() < share:
            response.body = response.body[: rng.randrange(len(response.body))]

    return on_get(cut)


def fail_with(status: int, times: int, **headers: str) -> Callable[[Response], None]:
    """Response the first `times` requests with an error."""
    left = [None] * times

    def fail(response: Response) -> None:
        if left:
            left.pop()
            response.status, response.body = status, b"sorry"
            response.headers = {"Content-Length": "5", **headers}

    return fail
