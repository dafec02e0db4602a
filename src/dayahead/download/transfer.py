"""Download one file over HTTP or any fsspec file system: retries, parallel resumable segments."""

import logging
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from fsspec import AbstractFileSystem
from tqdm import tqdm

from dayahead.core.redaction import redacted

ATTEMPTS = 5
PAUSE = 1.0
"""Seconds before the second attempt, plus or minus half; doubled after each failure."""
MAX_RETRY_AFTER = 60
"""Upper limit in seconds of the pause that a server demands (Retry-After)."""
SEGMENT = 16 << 20
"""Bytes per range request; a killed transfer loses at most THREADS segments."""
THREADS = 4
CHUNK = 8 << 20
"""Bytes per read from a server without range requests."""
_RETRIED_STATUS = (408, 429)
"""4xx responses that may succeed later."""
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, ValueError, ImportError)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class NoRangesError(ValueError):
    """The server does not support range requests."""


async def _check_response(response: aiohttp.ClientResponse) -> None:
    """Reject responses that fsspec would accept: an unencrypted redirect, or the wrong range."""
    schemes = [each.url.scheme for each in (*response.history, response)]
    if "https" in schemes and "http" in schemes[schemes.index("https") :]:
        raise ValueError("the server redirects from https to http, which is not encrypted")
    wanted = response.request_info.headers.get("Range", "").removeprefix("bytes=")
    sent = response.headers.get("Content-Range", "").removeprefix("bytes ")
    is_wanted = response.status == 206 and sent.split("-")[0] == wanted.split("-")[0]  # noqa: PLR2004
    if wanted and response.ok and not is_wanted:
        raise NoRangesError(f"requested bytes {wanted}, the server sends {sent or 'all'}")


HTTP: dict[str, Any] = {
    "client_kwargs": {
        "trust_env": True,  # proxies and .netrc
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60),
        "raise_for_status": _check_response,
    },
    "headers": {"Accept-Encoding": "identity"},  # a .gz must not be decompressed on the way
}
"""Settings of fsspec's HTTP file system."""


def describe_error(error: BaseException) -> str:
    """Return the message of the error at the root, without secrets."""
    root = _root(error)
    if isinstance(root, aiohttp.ClientResponseError):
        return f"the server returned {root.status} {root.message}"
    text = redacted(" ".join(str(root).split()).rstrip("."))
    return "no such file" if isinstance(root, FileNotFoundError) else text or type(root).__name__


def retry(call: Callable[[], _T], name: str) -> _T:
    """Call until it succeeds, at most ATTEMPTS times, with growing random pauses.

    Raises:
        Exception: the last failure, or the first one that another attempt cannot cure.
    """
    for failures in range(1, ATTEMPTS):
        try:
            return call()
        except Exception as error:
            if _is_permanent(error):
                raise
            pause = _pause(error, failures)
            _log.warning("%s: %s; retrying in %.1f s", name, describe_error(error), pause)
        time.sleep(pause)
    return call()


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_permanent(error: Exception) -> bool:
    root = _root(error)
    if isinstance(root, aiohttp.ClientResponseError):
        return 400 <= root.status < 500 and root.status not in _RETRIED_STATUS  # noqa: PLR2004
    # fsspec raises FileNotFoundError for an unreachable server, too.
    return isinstance(error, _PERMANENT) and not isinstance(root, aiohttp.ClientConnectionError)


def _pause(error: Exception, failures: int) -> float:
    root = _root(error)
    headers = root.headers if isinstance(root, aiohttp.ClientResponseError) else None
    demanded: str = headers.get("Retry-After", "") if headers else ""
    # Random, so that threads which failed together do not retry together.
    own = PAUSE * 2.0 ** (failures - 1) * random.uniform(0.5, 1.5)  # noqa: S311
    return max(own, min(int(demanded), MAX_RETRY_AFTER)) if demanded.isdigit() else own


@dataclass(frozen=True)
class Transfer:
    """Download of one file; running it again after an interruption fetches only what is missing."""

    fs: AbstractFileSystem
    path: str
    """Its path in `fs`."""
    size: int | None
    """Expected number of bytes; None if unknown."""
    target: Path
    """The local file; the bitmap of finished segments is next to it."""
    bar: tqdm

    def run(self) -> None:
        """Fetch what is missing.

        Raises:
            Exception: an error of the file system, after the last attempt.
            EOFError: the file is shorter or longer than `size`.
        """
        if self.size:
            try:
                self._fetch_segments(self.size)
            except NoRangesError as error:
                _log.info("%s: %s; reading it in one piece", self.target.name, error)
            else:
                return
        self._bitmap.unlink(missing_ok=True)
        retry(self._stream, self.target.name)

    @property
    def _bitmap(self) -> Path:
        """File with one byte per segment: 1 when the segment is on the disk."""
        return self.target.with_name(f".done-{SEGMENT}")

    def _fetch_segments(self, size: int) -> None:
        if not self.target.exists():
            self._bitmap.unlink(missing_ok=True)
        self.target.touch()
        self._bitmap.touch()
        done = self._bitmap.read_bytes()
        starts = [n * SEGMENT for n in range(-(-size // SEGMENT)) if done[n : n + 1] != b"\1"]
        lengths = [min(SEGMENT, size - start) for start in starts]
        self.bar.n = size - sum(lengths)
        # A file system that is not asynchronous may have a single connection (FTP).
        with ThreadPoolExecutor(THREADS if self.fs.async_impl else 1) as pool:
            for length in pool.map(self._fetch_segment, starts, lengths):
                self.bar.update(length)

    def _fetch_segment(self, start: int, length: int) -> int:
        # One byte more at the end detects a file that is longer than its server says.
        end = start + length + (start + length == self.size)

        def content() -> bytes:
            data: bytes = self.fs.cat_file(self.path, start=start, end=end)
            if len(data) != length:
                raise EOFError(f"got {len(data)} bytes instead of {length} from byte {start}")
            return data

        _write_at(self.target, start, retry(content, self.target.name))
        _write_at(self._bitmap, start // SEGMENT, b"\1")
        return length

    def _stream(self) -> None:
        """Read from front to back; without range requests every attempt starts at byte 0."""
        self.bar.n = 0
        with (
            self.target.open("wb") as out,
            # fsspec streams with a block size of 0; otherwise it would request ranges.
            self.fs.open(self.path, "rb", block_size=0, cache_type="none") as stream,
        ):
            while chunk := stream.read(CHUNK):
                out.write(chunk)
                self.bar.update(len(chunk))
            if self.size not in (None, out.tell()):
                raise EOFError(f"got {out.tell()} bytes instead of {self.size}")


def _write_at(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # the bitmap must not list a segment that a crash loses
