"""Connections of the service, which end if their clients keep them waiting."""

import asyncio
import json
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dayahead.serve.limits import Limits

HEADER_BYTES = 2**14
N_PARTS = 1_000
PART_BYTES = 256
"""Of a body's parts beyond `N_PARTS`, on average: each costs as much as a page of text."""


class BoundedConnection(H11Protocol):
    """A connection of HTTP/1.1 that waits for its client for a limited time.

    For a header, from the first connection or the first byte on, and for an answer to be received;
    the body's time is that of `WholeBody`, and between requests uvicorn's applies.
    """

    def __init__(self, *given: Any, limits: Limits, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self._limits = limits
        self.conn = _CountedParts(h11.SERVER, HEADER_BYTES)
        self._header_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._waits_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start, and end another connection where there are too many."""
        super().connection_made(transport)
        # Any byte that the client has not taken pauses writing.
        transport.set_write_buffer_limits(high=0)
        self._watch()
        if len(self.connections) > self._limits.connections:
            others = cast(set[BoundedConnection], self.connections)
            waiting = [each for each in others if each._waits_since is not None]
            min(waiting, key=lambda each: each._waits_since or 0.0).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Go on with what the client has sent."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waits_since = None
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to receive."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)
        self._watch()

    def resume_writing(self) -> None:
        """Go on: the client has received all."""
        super().resume_writing()
        self._answer_timer = _cancelled(self._answer_timer)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._header_timer = _cancelled(self._header_timer)
        self._answer_timer = _cancelled(self._answer_timer)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as all other errors are answered."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
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
        """Start and stop the time of a header; note since when the client is waited for."""
        state = self.conn.their_state
        if state is not h11.IDLE:
            self._header_timer = _cancelled(self._header_timer)
        elif self._header_timer is None and self.timeout_keep_alive_task is None:
            seconds = self._limits.request_seconds
            self._header_timer = self.loop.call_later(seconds, self.transport.abort)
        if state not in {h11.IDLE, h11.SEND_BODY} and not self.flow.write_paused:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self.loop.time()


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


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
