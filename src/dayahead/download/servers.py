"""How servers are asked, what their failures mean, and which are worth asking again."""

import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp

from dayahead.core.errors import redacted

ATTEMPTS = 5
PAUSE = 1.0
"""Seconds before the second attempt, give or take half; doubled with each failure."""
LONGEST_PAUSE = 60
"""Seconds waited at most where the server itself says how long (Retry-After)."""
_TRANSIENT = (408, 429)  # of the 4xx; the others stay what they are
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, ValueError, ImportError)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class NoRangesError(ValueError):
    """The server was asked for a part of a file and sends something else."""


async def _check(response: aiohttp.ClientResponse) -> None:
    """Refuse what fsspec would take for the answer.

    That is an answer from another place of the file, or one that anybody could have sent.
    """
    schemes = [answer.url.scheme for answer in (*response.history, response)]
    if "https" in schemes and "http" in schemes[schemes.index("https") :]:
        raise ValueError("the server redirects from https to http, which anybody could answer")
    asked = response.request_info.headers.get("Range", "").removeprefix("bytes=")
    given = response.headers.get("Content-Range", "").removeprefix("bytes ")
    is_asked_for = response.status == 206 and given.split("-")[0] == asked.split("-")[0]  # noqa: PLR2004
    if asked and response.ok and not is_asked_for:
        raise NoRangesError(f"asked for bytes {asked}, the server sends {given or 'all'}")


HTTP: dict[str, Any] = {
    "client_kwargs": {
        "trust_env": True,  # proxies and .netrc
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60),
        "raise_for_status": _check,
    },
    "headers": {"Accept-Encoding": "identity"},  # a .gz sent as it lies, not unpacked on the way
}
"""Settings of fsspec's HTTP file system."""


def told(error: BaseException) -> str:
    """Say what went wrong, in the words of the error that began it, without secrets."""
    root = _root(error)
    if isinstance(root, aiohttp.ClientResponseError):
        return f"the server answers {root.status} {root.message}"
    text = redacted(" ".join(str(root).split()).rstrip("."))
    return "no such file" if isinstance(root, FileNotFoundError) else text or type(root).__name__


def retried(call: Callable[[], _T], what: str) -> _T:
    """Call until it succeeds, at most ATTEMPTS times, with growing random pauses between.

    Raises:
        Exception: the last failure, or the first one that no further attempt can mend.
    """
    for failures in range(1, ATTEMPTS):
        try:
            return call()
        except Exception as error:
            if _is_lasting(error):
                raise
            pause = _pause(error, failures)
            _log.warning("%s: %s; again in %.1f s", what, told(error), pause)
        time.sleep(pause)
    return call()


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_lasting(error: Exception) -> bool:
    root = _root(error)
    if isinstance(root, aiohttp.ClientResponseError):
        return 400 <= root.status < 500 and root.status not in _TRANSIENT  # noqa: PLR2004
    # fsspec says FileNotFoundError of a server that cannot be reached, too.
    return isinstance(error, _LASTING) and not isinstance(root, aiohttp.ClientConnectionError)


def _pause(error: Exception, failures: int) -> float:
    root = _root(error)
    headers = root.headers if isinstance(root, aiohttp.ClientResponseError) else None
    asked: str = headers.get("Retry-After", "") if headers else ""
    own = PAUSE * 2.0 ** (failures - 1) * random.uniform(0.5, 1.5)  # noqa: S311
    return max(own, min(int(asked), LONGEST_PAUSE)) if asked.isdigit() else own
