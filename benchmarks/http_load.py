"""Requests over HTTP from many clients at once, each with a connection of its own."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Load:
    """What came of the requests."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Seconds of each request."""
    failures: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Return the latency that this share of the requests does not exceed."""
        return sorted(self.latencies)[round(share * (len(self.latencies) - 1))]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds


async def apply_load(
    port: int,
    requests: Sequence[Any],
    n_clients: int,
    read: Callable[[Any], Any] = lambda answer: None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Load:
    """Post requests to /recommend, each client one after another; `read` says what is kept.

    `meanwhile` runs beside them, and ends with them.
    """
    load, waiting = Load(), iter(requests)
    beside = asyncio.ensure_future(meanwhile()) if meanwhile else None
    start = time.perf_counter()
    await asyncio.gather(*(_client(port, waiting, load, read) for _ in range(n_clients)))
    load.seconds = time.perf_counter() - start
    if beside is not None:
        beside.cancel()
    return load


async def _client(
    port: int, waiting: Iterator[Any], load: Load, read: Callable[[Any], Any]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in waiting:
        start = time.perf_counter()
        try:
            status, body = await post(reader, writer, "/recommend", json.dumps(request).encode())
            if status != 200:
                load.failures.append(f"{status} {body[:200]!r}")
            else:
                load.answers.append(read(json.loads(body)))
        except (OSError, EOFError, ValueError) as error:
            load.failures.append(repr(error))
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        load.latencies.append(time.perf_counter() - start)
    writer.close()
    await writer.wait_closed()


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> tuple[int, bytes]:
    """Post JSON on an open connection; return status and body of the answer."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
    return int(lines[0].split()[1]), await reader.readexactly(length)
