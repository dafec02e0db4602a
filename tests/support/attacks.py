"""Clients that try to stop a service from answering others.

Command: python tests/support/attacks.py PORT NAME SECONDS
"""

import asyncio
import contextlib
import json
import sys
from functools import partial

EVENT = {"item_id": 1, "event_time": "2026-01-02T00:00:00Z"}
HEAD = "POST /recommend/batch HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
MIB = 2**20


def request(body):
    return f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body


def batch(n, **session):
    return json.dumps({"requests": [session] * n}).encode()


def repeated(part, n_bytes):
    """A session of this part over and over."""
    return b'{"requests":[{"session":[' + (part * (n_bytes // len(part)))[:-1] + b"]}]}"


def named(n_events, n_names):
    events = [EVENT] * (n_events - 1) + [EVENT | {f"name{n}": n for n in range(n_names)}]
    return json.dumps({"requests": [{"events": events}]}).encode()


CONTENTS = {
    "many names": named(9_000, 10_000),
    "names of each event": json.dumps(
        {"requests": [{"events": [EVENT | {f"{row}-{n}": 1 for n in range(40)}
                                  for row in range(4_000)]}]}
    ).encode(),
    "deep nesting": b"[" * 500_000,
    "huge numbers": repeated(b"9" * 4_000 + b",", 3 * MIB),
    "empty lists": repeated(b"[],", 3 * MIB),
    "null items": repeated(b"null,", 3 * MIB),
    "unknown fields": json.dumps({f"n{n}": 1 for n in range(200_000)}).encode(),
    "sessions x top_k": batch(1_000, session=[1, 2], top_k=10_000),
    "sessions x allowed top_k": batch(1_000, session=[1, 2], top_k=110),
    "long sessions": batch(11, session=[*range(10_000)]),
    "filters": batch(100, session=[1, 2], deny=[*range(1_100)], exclude_seen=True),
    "unknown items": batch(10, session=[f"{n}" * 8 for n in range(10**6, 10**6 + 3_000)]),
    "more than is allowed": b" " * (64 * MIB),
}  # fmt: skip
"""Sent over and over, by some clients at once."""


async def flood(port, body, n_clients=4):
    async def client():
        while True:
            with contextlib.suppress(OSError, EOFError):
                await exchanged(port, request(body))

    await asyncio.gather(*(client() for _ in range(n_clients)))


async def exchanged(port, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line for line in head.split("\r\n") if line.startswith("content-length"))
        return head, await reader.readexactly(int(length.split(":")[1]))
    finally:
        writer.close()


async def drip(port, beginning, part, n_connections, pause=0.2):
    """Keep connections open, each with a part from time to time."""

    async def client():
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(beginning)
                while not writer.is_closing():
                    await asyncio.sleep(pause)
                    writer.write(part)
                    await writer.drain()

    await asyncio.gather(*(client() for _ in range(n_connections)))


async def endless(port, part, n_connections=4):
    """Send a chunked body without end, as fast as it is taken."""

    async def client():
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode())
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(part)
                    await writer.drain()
                writer.close()

    await asyncio.gather(*(client() for _ in range(n_connections)))


async def read_nothing(port, n_connections=20):
    """Ask for large answers, and take none."""

    async def client():
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=2)
                writer.transport.pause_reading()
                writer.write(request(CONTENTS["sessions x allowed top_k"]))
                await asyncio.sleep(5)
                writer.transport.abort()

    await asyncio.gather(*(client() for _ in range(n_connections)))


CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode()
CONNECTIONS = {
    "slow header": partial(drip, beginning=b"POST /", part=b"x", n_connections=200),
    "slow body": partial(
        drip, beginning=f"{HEAD}content-length: 1000\r\n\r\n".encode(), part=b" ", n_connections=200
    ),
    "slow chunks": partial(drip, beginning=CHUNKED, part=b"1\r\n \r\n", n_connections=200),
    "wrong content-length": partial(
        drip,
        beginning=f"{HEAD}content-length: 99\r\n\r\n{{}}".encode(),
        part=b"",
        n_connections=200,
    ),
    "idle connections": partial(drip, beginning=b"", part=b"", n_connections=1_500),
    "huge header": partial(
        drip, beginning=b"GET / HTTP/1.1\r\nx: " + b"x" * MIB, part=b"x" * 9_999, n_connections=20
    ),
    "endless body": partial(endless, part=b"10000\r\n" + b" " * 2**16 + b"\r\n"),
    "endless body in tiny chunks": partial(endless, part=b"1\r\n \r\n" * 10_000),
    "slow reader": read_nothing,
}
ATTACKS = {name: partial(flood, body=body) for name, body in CONTENTS.items()} | CONNECTIONS


async def latencies(port, seconds):
    """Seconds of an ordinary request, one after another over connections of their own."""
    loop, found = asyncio.get_running_loop(), []
    body = b'{"requests": [{"session": [1, 2], "top_k": 5}]}'
    end = loop.time() + seconds
    while (start := loop.time()) < end:
        try:
            head, _ = await asyncio.wait_for(exchanged(port, request(body)), 60)
            is_good = head.startswith("http/1.1 200")
        except (OSError, EOFError, TimeoutError):
            is_good = False
        found.append(loop.time() - start if is_good else float("inf"))
        await asyncio.sleep(0.02)
    return found


async def main(port, name, seconds):
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ATTACKS[name](port)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
