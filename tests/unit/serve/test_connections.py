"""Connections whose clients are slow, many or wrong, over a real socket."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn

from dayahead.serve.connections import connections_within
from dayahead.serve.limits import Limits
from dayahead.serve.request_body import WholeBody

HEAD = b"POST /recommend HTTP/1.1\r\nhost: a\r\n"
LARGE = 16 * 2**20


async def answer_length(scope, receive, send):
    """Answer with the length of the body; on /large with many bytes, on /slow later."""
    body = (await receive())["body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    content = b"x" * LARGE if scope["path"] == "/large" else str(len(body)).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@asynccontextmanager
async def serving(app=answer_length, **limits):
    """Serve an application within some limits; yield the server and its port."""
    limits = Limits(**{"request_seconds": 0.3, "answer_seconds": 0.3} | limits)
    config = uvicorn.Config(
        WholeBody(app, limits), http=connections_within(limits),
        ws="none", lifespan="off", log_level="error", timeout_keep_alive=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield server, listening.getsockname()[1]
        server.should_exit = True
        await asyncio.wait_for(running, 60)


async def connect(port):
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 60)


async def all_of(reader):
    """What comes until the connection ends; empty if it is reset."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""


async def exchange(port, request):
    reader, writer = await connect(port)
    writer.write(request)
    answer = await all_of(reader)
    writer.close()
    return answer


async def is_answered(port):
    request = HEAD + b"connection: close\r\ncontent-length: 3\r\n\r\n[1]"
    answer = await exchange(port, request)
    return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n3")


def run(work, **limits):
    """Return what `work(port)` returns; afterwards the server must still answer."""

    async def main():
        async with serving(**limits) as (_, port):
            result = await work(port)
            assert await is_answered(port)
            return result

    return asyncio.run(main())


@pytest.mark.parametrize("beginning", [b"", HEAD], ids=repr)
def test_a_header_that_does_not_come_ends_the_connection(beginning):
    assert run(lambda port: exchange(port, beginning)) == b""


@pytest.mark.parametrize("n_before", [0, 1])
def test_a_header_byte_by_byte_ends_the_connection(n_before):
    header, n_sent = HEAD * 10, 0

    async def drip(port):
        nonlocal n_sent
        reader, writer = await connect(port)
        for _ in range(n_before):
            writer.write(HEAD + b"content-length: 0\r\n\r\n")
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n0"), 60)
            assert answer.startswith(b"HTTP/1.1 200")
        while n_sent < len(header) and not (reader.at_eof() or reader.exception()):
            writer.write(header[n_sent : n_sent + 1])
            n_sent += 1
            await asyncio.sleep(0.02)
        writer.close()

    run(drip)
    assert n_sent < len(header)


@pytest.mark.parametrize(
    "rest",
    [b"content-length: 10\r\n\r\n12345", b"transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n"],
    ids=["content-length that is too long", "chunked without an end"],
)
def test_a_body_that_does_not_come_is_408_and_ends_the_connection(rest):
    answer = run(lambda port: exchange(port, HEAD + rest))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in answer
    assert "did not arrive" in json.loads(answer.split(b"\r\n\r\n")[1])["error"]


def test_a_time_limit_of_a_client_is_none_of_the_model():
    async def ask(port):
        request = b"GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        return await exchange(port, request)

    assert run(ask).startswith(b"HTTP/1.1 200")


def test_who_does_not_receive_a_large_answer_loses_the_connection():
    async def main():
        async with serving() as (server, port):
            reader, writer = await connect(port)
            writer.transport.pause_reading()
            writer.write(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
            while not server.server_state.total_requests or server.server_state.connections:
                await asyncio.sleep(0.01)
            writer.transport.resume_reading()
            answer = await all_of(reader)
            writer.close()
            assert await is_answered(port)
            return answer

    assert len(asyncio.run(asyncio.wait_for(main(), 60))) < LARGE


def test_who_receives_a_large_answer_gets_it_whole():
    async def ask(port):
        return await exchange(port, b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")

    assert len(run(ask, answer_seconds=60)) > LARGE


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (b"POST / HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 100_000, "Invalid HTTP"),
        (HEAD + b"content-length: -1\r\n\r\n", "Invalid HTTP"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 5_000, "Invalid HTTP"),
        (b"\x16\x03\x01 TLS\r\n\r\n", "Invalid HTTP"),
    ],
    ids=["huge header", "negative", "tiny chunks", "TLS"],
)
def test_what_is_no_http_is_400_in_json_and_ends_the_connection(request_, message):
    answer = run(lambda port: exchange(port, request_), request_seconds=60)
    if answer:  # else reset, because more of the request was on its way
        head, body = answer.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert message in json.loads(body)["error"]


def test_a_body_in_ordinary_chunks_is_read():
    chunks = b"".join(b"200\r\n" + b"x" * 512 + b"\r\n" for _ in range(2_000)) + b"0\r\n\r\n"
    head = HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = run(lambda port: exchange(port, head + chunks), request_seconds=60)
    assert answer.endswith(b"\r\n\r\n1024000")


def test_a_body_in_single_bytes_is_read():
    head = HEAD + b"connection: close\r\ncontent-length: 300\r\n\r\n"

    async def drip(port):
        reader, writer = await connect(port)
        writer.write(head)
        for _ in range(300):
            writer.write(b"x")
            await asyncio.sleep(0)
        answer = await all_of(reader)
        writer.close()
        return answer

    assert run(drip, request_seconds=60).endswith(b"\r\n\r\n300")


def test_a_body_without_end_is_refused():
    async def flood(port):
        reader, writer = await connect(port)
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 2**16 + b"\r\n"
        n_sent = 0
        try:
            while not reader.at_eof() and n_sent < 10_000:
                writer.write(chunk)
                await writer.drain()
                n_sent += 1
        except ConnectionError:
            pass
        writer.close()
        return n_sent

    assert run(flood, body_bytes=1_000, request_seconds=60) < 10_000


def test_a_client_that_sends_all_before_it_reads_gets_its_413():
    request = HEAD + b"content-length: 3000000\r\n\r\n" + b"x" * 3_000_000
    answer = run(lambda port: exchange(port, request), body_bytes=1_000, request_seconds=60)
    assert answer.startswith(b"HTTP/1.1 413")
    assert [*json.loads(answer.split(b"\r\n\r\n")[1])] == ["error"]


def test_a_client_that_asks_before_it_sends_gets_its_413_at_once():
    request = HEAD + b"expect: 100-continue\r\ncontent-length: 3000000\r\n\r\n"
    answer = run(lambda port: exchange(port, request), body_bytes=1_000, request_seconds=20)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_further_connection_ends_the_one_that_has_waited_longest():
    async def work(port):
        idle = []
        for _ in range(6):
            idle.append(await connect(port))
            await asyncio.sleep(0.01)
        answers = [await is_answered(port) for _ in range(3)]
        ended = [await all_of(reader) for reader, _ in idle[:3]]
        are_open = [not reader.at_eof() for reader, _ in idle[3:]]
        for _, writer in idle:
            writer.close()
        return answers, ended, are_open

    answers, ended, are_open = run(work, connections=4, request_seconds=30)
    assert answers == [True] * 3
    assert ended == [b""] * 3
    assert are_open == [True] * 3


def test_a_further_connection_ends_none_that_is_answered():
    arrived, is_refused = [], asyncio.Event()

    async def held(scope, receive, send):
        if scope["path"] == "/held":
            arrived.append(scope)
            await is_refused.wait()
        await answer_length(scope, receive, send)

    async def work(port):
        request = b"GET /held HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        asked = [asyncio.create_task(exchange(port, request)) for _ in range(2)]
        while len(arrived) < len(asked):
            await asyncio.sleep(0.01)
        refused = await exchange(port, HEAD + b"content-length: 0\r\n\r\n")
        is_refused.set()
        return refused, await asyncio.gather(*asked)

    refused, answers = run(work, app=held, connections=2)
    assert refused == b""
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def test_two_requests_at_once_are_answered_in_order():
    request = HEAD + b"content-length: 2\r\n\r\nxx" + HEAD
    request += b"connection: close\r\ncontent-length: 3\r\n\r\nxxx"
    answer = run(lambda port: exchange(port, request), request_seconds=60)
    assert [part[-1:] for part in answer.split(b"HTTP/1.1 200")[1:]] == [b"2", b"3"]
