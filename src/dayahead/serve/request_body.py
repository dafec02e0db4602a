"""A request's body: read whole within limits of size and time, then parsed as JSON."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dayahead.serve.limits import MIB, Limits

DISCARDED_BYTES = 64 * MIB
"""Bytes read and dropped before a refusal: most clients read no answer until they have sent all."""
LARGE_BYTES = 2**14
"""Requests larger than this are read one after another."""


class WholeBody:
    """Reads each request's whole body before the application sees it.

    Refused with `{"error": ...}` are encoded ones (415), too large ones (413) and those that take
    too long (408). Then the connection ends: what follows on it may be the rest of the body.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        seconds, refusal = self._limits.request_seconds, self._refusal(headers)
        try:
            async with asyncio.timeout(seconds):
                body = await self._read(receive, headers, is_refused=refusal is not None)
        except TimeoutError:
            refusal = _refused(408, f"the body did not arrive within {seconds:g} seconds")
        else:
            if body is None:  # the client has gone
                return
            if refusal is None and len(body) > self._limits.body_bytes:
                refusal = self._too_large()
            if refusal is None:
                await self._app(scope, _replayed(bytes(body), receive), send)
                return
        await refusal(scope, receive, send)

    def _refusal(self, headers: dict[bytes, bytes]) -> Response | None:
        """Return the refusal of a request by its header, if there is a reason."""
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity":
            message = "expected a body without Content-Encoding; send JSON as it is"
            return _refused(415, message, {"accept-encoding": "identity"})
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            return self._too_large()
        return None

    async def _read(
        self, receive: Receive, headers: dict[bytes, bytes], *, is_refused: bool
    ) -> bytearray | None:
        """Return the body, or its beginning if it is too large; None if the client has gone."""
        body, n_read = bytearray(), 0
        if is_refused and b"expect" in headers:  # the client waits for permission to send
            return body
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            n_read += len(part)
            if not is_refused and len(body) <= self._limits.body_bytes:
                body += part
            if (
                not message.get("more_body", False)
                or n_read > self._limits.body_bytes + DISCARDED_BYTES
            ):
                return body

    def _too_large(self) -> Response:
        limit = f"{self._limits.body_bytes / MIB:g} MiB (dayahead serve --max-body-mib)"
        return _refused(413, f"the body is larger than {limit}; send fewer sessions at once")


def _refused(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, {"connection": "close", **(headers or {})})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return the body as one message, and then the further messages of the connection."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


class _JsonRequest(Request):
    """Large requests are read one at a time, with a pause after each for as long as it has taken.

    Parsing, validation and the check of limits block the event loop; in the pause others have it.
    """

    async def json(self) -> Any:  # noqa: ANN401
        body = await self.body()
        if len(body) > LARGE_BYTES:
            reading = self.app.state.reading
            await reading.acquire()
            loop = asyncio.get_running_loop()
            # Called once this task waits for something: for the model, when all checks are done.
            loop.call_soon(_release_after_pause, reading, loop.time())
        return json.loads(body, parse_constant=_no_number)


def _release_after_pause(reading: asyncio.Lock, start: float) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(loop.time() - start, reading.release)


class JsonRoute(APIRoute):
    """A route whose requests block the event loop for one large body at a time."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        handler: Callable[[Request], Awaitable[Response]] = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


def _no_number(name: str) -> NoReturn:
    raise HTTPException(422, f"the body is not valid JSON ({name} is no number)")
