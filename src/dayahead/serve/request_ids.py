"""Ids of requests, echoed in answers and written beside what the log says of them."""

import logging
import re
import secrets
from contextvars import ContextVar
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "X-Request-ID"
current: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request that is answered; empty outside of one."""
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
"""What a log or a header may repeat."""


class RequestIds:
    """Gives each request the id that its client or proxy sent, or a random one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(HEADER.lower().encode(), b"")
        name = given if _ID.fullmatch(given) else secrets.token_hex(8).encode()
        # Not reset: the server logs an error of this request later, in the same context.
        current.set(name.decode())

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (HEADER.lower().encode(), name)]
            await send(message)

        await self._app(scope, receive, sent)


def add_request_id(record: logging.LogRecord) -> bool:
    """Add the id to a record, as a filter of a handler: ` (request 1a2b)`, or nothing."""
    name = current.get()
    record.request = f" (request {name})" if name else ""
    return True
