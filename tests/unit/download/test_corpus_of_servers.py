"""Logs from servers that misbehave in random ways: the events written, or one error; never others.

After an error the same server, now well-behaved, gives all of them.
"""

import gzip
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError
from dayahead.dataset.schema import DatasetConfig
from dayahead.download import transfer
from dayahead.download.stage import download
from support.dialects import as_csv, as_events, as_json, as_parquet, packed, random_rows
from support.fetches import cut_at_random, fail_with, on_get
from support.sources import Response, Served, a_dataset, serving

Change = Callable[[Response], None]
NAMES = [
    "log",
    "two words",
    "\u65e5\u672c",
    "a;b",
    "a%20b",
    "x" * 180,
    "..",
    "a+b&c=d",
    "~'(1)",
    "#1",
]
QUERIES = ["", "?token=SECRET", "?a=b;c&d", "?x=%2F..%2F"]


def failing(rng: random.Random) -> Change:
    return fail_with(rng.choice([403, 404, 408, 410, 429, 500, 502, 503]), rng.choice([1, 3, 99]))


def failing_to_list(rng: random.Random) -> Change:
    """As servers that know GET alone."""
    change = fail_with(rng.choice([403, 404, 405, 501]), 99)
    return lambda response: change(response) if response.command == "HEAD" else None


def cutting(rng: random.Random) -> Change:
    return cut_at_random(rng.randrange(10**6), rng.choice([0.2, 0.6, 1.0]))


def misjudging(rng: random.Random) -> Change:
    """Announce another size in the listing, in the response or in both."""
    lie = rng.choice([-300, -1, 1, 300])
    commands = rng.choice([["HEAD"], ["GET"], ["HEAD", "GET"]])

    def change(response: Response) -> None:
        if response.command in commands and response.headers.get("Content-Length"):
            length = int(response.headers["Content-Length"] or 0) + lie
            response.headers["Content-Length"] = str(max(0, length))

    return change


def hiding(rng: random.Random) -> Change:
    names = rng.sample(["ETag", "Content-Length", "Content-Range"], rng.randint(1, 3))

    def change(response: Response) -> None:
        response.headers |= {**dict.fromkeys(names), "Connection": "close"}

    return change


def compressing(_: random.Random) -> Change:
    """As servers that do not care what a client accepts."""

    def change(response: Response) -> None:
        response.body = gzip.compress(response.body)
        length = {"Content-Length": str(len(response.body))}
        response.headers |= {"Content-Encoding": "gzip", **length}

    return change


def chunking(rng: random.Random) -> Change:
    is_torn = rng.random() < 0.5
    size = rng.choice([1, 100, 5000])

    def change(response: Response) -> None:
        parts = [response.body[n : n + size] for n in range(0, len(response.body), size)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        response.body = body if is_torn else body + b"0\r\n\r\n"
        response.headers |= {"Transfer-Encoding": "chunked", "Content-Length": None}
        response.headers |= {"Connection": "close"} if is_torn else {}

    return change


def redirecting(rng: random.Random) -> Change:
    """Back to the same path, which may never end."""
    left = [None] * rng.choice([1, 4, 999])
    status = rng.choice([301, 302, 303, 307, 308])

    def change(response: Response) -> None:
        if left:
            left.pop()
            response.status, response.body = status, b""
            response.headers = {"Location": "?again", "Content-Length": "0"}

    return change


def shifting(rng: random.Random) -> Change:
    """Send another part than was asked for, and say so."""
    by = rng.choice([-1, 1, 100])

    def change(response: Response) -> None:
        header = response.headers.get("Content-Range")
        if header:
            end, total = header.split("-")[1].split("/")
            begin = response.start + by
            response.headers["Content-Range"] = f"bytes {begin}-{int(end) + by}/{total}"

    return change


def answering_with_a_page(rng: random.Random) -> Change:
    """As networks that want a login first."""
    left = [None] * rng.choice([1, 2, 99])

    def change(response: Response) -> None:
        if left:
            left.pop()
            response.status, response.body = 200, b"<html>Please log in</html>"
            response.headers = {"Content-Length": str(len(response.body))}

    return change


def stalling(rng: random.Random) -> Change:
    left = [None] * rng.choice([1, 2])

    def change(_: Response) -> None:
        if left:
            left.pop()
            time.sleep(0.5)

    return change


CHANGES = [failing, failing_to_list, cutting, misjudging, hiding, compressing, chunking]
CHANGES += [redirecting, shifting, answering_with_a_page, stalling]


def misbehaviour(rng: random.Random) -> Change:
    """One or two of CHANGES, of all responses or of those to GET."""
    changes = [make(rng) for make in rng.sample(CHANGES, rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        changes = [on_get(change) for change in changes]

    def change(response: Response) -> None:
        for each in changes:
            each(response)

    return change


def events_in(raw: Path) -> list[dict[str, Any]]:
    parts = sorted(raw.glob("events-*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def complaint_of(dataset: DatasetConfig, folder: Path) -> str:
    try:
        download(dataset, "mine", folder / "raw")
    except SourceError as error:
        return str(error)
    return ""


def check_one(folder: Path, seed: int) -> bool:
    """Return whether the log came through at the first go."""
    rng = random.Random(seed)
    rows = random_rows(rng) * rng.choice([1, 30])
    kind = rng.choice(["csv", "jsonl", "parquet"])
    source: dict[str, Any] = {}
    if kind == "csv":
        content, source = as_csv(rows, rng, is_damaged=False)
    else:
        content = (as_json if kind == "jsonl" else as_parquet)(rows, rng)
    path = folder / f"{seed}.{kind}"
    path.write_bytes(content)
    if rng.random() < 0.3:
        path = packed(path, content, rng)
    name = f"{rng.choice(NAMES)}{path.name}"
    served = Served(
        {f"dir/{name}": path.read_bytes()},
        has_ranges=rng.random() < 0.7,
        announces_no_ranges=rng.random() < 0.5,
        change=misbehaviour(rng),
    )
    with serving(served):
        url = served.url(f"dir/{quote(name)}") + rng.choice(QUERIES)
        dataset = a_dataset(
            source={"urls": [url], "format": kind, **source},
            features={"price": {"kind": "number", "column": "price"}},
        )
        if complaint := complaint_of(dataset, folder):
            assert "SECRET" not in complaint
            served.change = None
            download(dataset, "mine", folder / "raw")
    assert events_in(folder / "raw") == as_events(rows)
    return not complaint


@pytest.mark.slow
@pytest.mark.parametrize("first", range(16))
def test_logs_from_any_server(tmp_path, monkeypatch, first):
    timeout = aiohttp.ClientTimeout(sock_read=0.3)
    monkeypatch.setitem(transfer.HTTP["client_kwargs"], "timeout", timeout)
    monkeypatch.setattr(transfer, "SEGMENT", 1000)
    n_first = 0
    for seed in range(20 * first, 20 * (first + 1)):
        try:
            n_first += check_one(tmp_path, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert 2 < n_first < 20
