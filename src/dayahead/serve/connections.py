"""Connections of the service, which are closed if their clients are too slow."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dayahead.serve.limits import Limits

HEADER_BYTES = 2**14
N_PARTS = 1_000
PART_BYTES = 256
"""Least average size of parts beyond `N_PARTS`: any part costs as much as a page of text."""


class BoundedConnection(H11Protocol):
    """A connection of HTTP/1.1 that waits for its client for a limited time.

    It limits the time to send a header, from the start of the connection or the first byte on, and
    the time to receive an answer. `WholeBody` limits the time of the body, uvicorn that between
    requests.

    Args:
        given: positional arguments of uvicorn's connection.
        limits: limits of connections and times.
        waiting: connections that wait for their clients, the longest first; shared by all.
        named: keyword arguments of uvicorn's connection.
    """

    def __init__(
        self,
        *given: Any,  # noqa: ANN401
        limits: Limits,
        waiting: "dict[BoundedConnection, None]",
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        # Replaces the parser that uvicorn has just created.
        self.conn = _CountedParts(h11.SERVER, HEADER_BYTES)
        self._header_timer = _Timer(lambda: self.transport.abort())
        self._answer_timer = _Timer(lambda: self.transport.abort())
        self._waiting = waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start; close another connection if there are too many."""
        super().connection_made(transport)
        # With a limit of 0, `pause_writing` is called for any byte that the client has not taken.
        transport.set_write_buffer_limits(high=0)
        self._watch()
        if len(self.connections) > self._limits.connections:
            # Dicts keep their order: the first connection has waited longest.
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process what the client has sent."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waiting.pop(self, None)
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to receive."""
        super().pause_writing()
        self._answer_timer.start(self.loop, self._limits.answer_seconds)
        self._watch()

    def resume_writing(self) -> None:
        """Continue: the client has received everything."""
        super().resume_writing()
        self._answer_timer.stop()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._waiting.pop(self, None)
        self._header_timer.stop()
        self._answer_timer.stop()

    def send_400_response(self, msg: str) -> None:
        """Answer a message that is not HTTP in the form of all other errors."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            # An answer has started, so no other can be sent.
            self.transport.abort()
            return
        body = json.dumps({"error": msg}).encode()
        headers = [("content-type", "application/json"), ("connection", "close"),
                   ("content-length", str(len(body)))]  # fmt: skip
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Start and stop the timer of a header; note whether the connection awaits its client."""
        if self.transport.is_closing() and not self.flow.write_paused:
            return
        state = self.conn.their_state
        if state is not h11.IDLE:
            self._header_timer.stop()
        elif not self._header_timer.is_running and self.timeout_keep_alive_task is None:
            self._header_timer.start(self.loop, self._limits.request_seconds)
        if state in {h11.IDLE, h11.SEND_BODY} or self.flow.write_paused:
            self._waiting.setdefault(self)
        else:
            self._waiting.pop(self, None)


class _CountedParts(h11.Connection):
    """Refuses a body in very many small parts, such as chunks of a byte: each costs time."""

    _n_parts = _n_bytes = 0

    def next_event(self) -> Any:  # noqa: ANN401
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._n_parts = self._n_bytes = 0
        elif isinstance(event, h11.Data):
            self._n_parts += 1
            self._n_bytes += len(event.data)
            if self._n_parts > N_PARTS + self._n_bytes / PART_BYTES:
                raise h11.RemoteProtocolError("the parts of the body are too small")
        return event


class _Timer:
    """Calls `late` after some seconds, unless it is stopped before."""

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._handle = loop.call_later(seconds, self._late)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def connections_within(limits: Limits) -> type[asyncio.Protocol]:
    """Return the factory of the connections of one server: uvicorn's option `http`."""
    return cast(type[asyncio.Protocol], partial(BoundedConnection, limits=limits, waiting={}))
