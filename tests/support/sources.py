"""Data set settings, and a small web server, for tests of the download room."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from dayahead.config.loading import validated
from dayahead.dataset.schema import DatasetConfig

_VALIDATED: dict[str, DatasetConfig] = {}
"""By their text: validation looks through all time zones, and takes longer than most tests."""


def a_dataset(**sections: Any) -> DatasetConfig:
    """A data set with the columns session, item, time; sections given replace or extend it."""
    raw = {
        "description": "for a test",
        "licence": "none",
        "source": {"urls": ["unused.csv"]},
        "columns": {"session_id": "session", "item_id": {"column": "item", "type": "int"}},
        "time": {"column": "time"},
        "sessions": {"repeats": {"rule": "keep", "scope": "session"}},
        "features": {},
        "split": {"seed": 1, "train": [0, 1], "valid": [0, 0.5], "test": [0.5, 1]},
        "quality": {},
    }
    for name, value in sections.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    text = repr(raw)
    if text not in _VALIDATED:
        _VALIDATED[text] = validated(DatasetConfig, raw, "test")
    return _VALIDATED[text]


@dataclass
class Response:
    """A response to be sent; with a body shorter than Content-Length, the connection is cut."""

    command: str
    """HEAD or GET."""
    start: int
    """Offset of the body in the file."""
    status: int
    headers: dict[str, str | None]
    body: bytes


@dataclass
class Served:
    """The server's files, its behaviour, and the requests it got."""

    files: dict[str, bytes]
    has_ranges: bool = True
    announces_no_ranges: bool = True
    """Whether a server without range requests says so in its headers."""
    etag: str | None = '"1"'
    drops_after: list[int] = field(default_factory=list)
    """Bytes of each next response after which the connection is closed; then no more drops."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each GET."""
    port: int = 0
    change: Callable[[Response], None] | None = None
    """Changes a response before it is sent; called in the thread of its connection."""

    def url(self, path: str, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.port}/{path}"


class Handler(BaseHTTPRequestHandler):
    """Responds from the `Served` of its server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self.server.served.requests.append((self.path, self.headers["Range"]))
        self._respond(with_body=True)

    def log_message(self, *_: Any) -> None:
        pass

    def _respond(self, *, with_body: bool) -> None:
        served = self.server.served
        path = self.path.lstrip("/").partition("?")[0]
        body = served.files.get(path, served.files.get(unquote(path)))
        if body is None:
            self.send_error(404)
            return
        start, end = self._range(len(body))
        is_whole = not (served.has_ranges and self.headers["Range"])
        headers = {
            "Content-Length": str(end - start),
            "Content-Range": None if is_whole else f"bytes {start}-{end - 1}/{len(body)}",
            "Accept-Ranges": None
            if served.has_ranges or not served.announces_no_ranges
            else "none",
            "ETag": served.etag,
        }
        response = Response(self.command, start, 200 if is_whole else 206, headers, body[start:end])
        if served.change is not None:
            served.change(response)
        self._send(response, with_body=with_body)

    def _range(self, size: int) -> tuple[int, int]:
        wanted = self.headers["Range"]
        if not (self.server.served.has_ranges and wanted):
            return 0, size
        first, last = wanted.removeprefix("bytes=").split("-")
        return int(first), min(int(last) + 1, size)

    def _send(self, response: Response, *, with_body: bool) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if not with_body:
            return
        drops_after = self.server.served.drops_after
        body = response.body[: drops_after.pop(0)] if drops_after else response.body
        self.wfile.write(body)
        if len(body) < int(response.headers["Content-Length"] or 0):
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()


class Server(ThreadingHTTPServer):
    """A web server on a free port of 127.0.0.1."""

    def __init__(self, served: Served) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.served = served
        served.port = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not report clients that disconnect."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Serve `served.files`."""
    with Server(served) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield served
        server.shutdown()
