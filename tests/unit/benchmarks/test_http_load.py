"""Requests from many clients: every one is counted, failures too."""

import asyncio
import json

from http_load import Load, apply_load


async def served(handle, work):
    """Run `work(port)` beside a server that answers with `handle(request)`, status and JSON."""

    async def talk(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            status, answer = handle(json.loads(await reader.readexactly(length)))
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            writer.write(body)

    async def quietly(reader, writer):
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    async with server:
        return await work(server.sockets[0].getsockname()[1])


def test_answers_are_read_and_failures_counted():
    def handle(request):
        return (500, "no") if request == 3 else (200, {"doubled": 2 * request})

    load = asyncio.run(
        served(handle, lambda port: apply_load(port, range(10), 4, lambda a: a["doubled"]))
    )
    assert sorted(load.answers) == [0, 2, 4, 8, 10, 12, 14, 16, 18]
    assert load.failures == ["500 b'\"no\"'"]
    assert len(load.latencies) == 10
    assert 0 < load.seconds < 10


def test_percentiles_and_rate():
    load = Load(seconds=2.0, latencies=[0.3, 0.1, 0.2, 0.5, 0.4])
    assert [load.percentile(share) for share in (0.0, 0.5, 0.99)] == [0.1, 0.3, 0.5]
    assert load.rate == 2.5
