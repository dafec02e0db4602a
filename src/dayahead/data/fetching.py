"""A source's files, wherever fsspec finds them: listed, fetched, continued, verified."""

import hashlib
import logging
import os
import posixpath
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import aiohttp
from filelock import FileLock
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from tqdm import tqdm

from dayahead.errors import SourceError, redacted
from dayahead.files import read_json, sha256_of, write_json

CHUNK = 8 << 20
ATTEMPTS = 5
"""Failures in a row without a new byte before a fetch is given up."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled with each failure."""
_VERSION_KEYS = ("ETag", "Last-Modified", "LastModified", "etag", "mtime", "updated", "created")
_HTTP = {
    "client_kwargs": {
        "trust_env": True,  # proxies and .netrc
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60),
    },
    "headers": {"Accept-Encoding": "identity"},  # a .gz sent as it lies, not unpacked on the way
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, as its server or folder lists it."""

    url: str
    """May hold credentials: for messages and records take `shown`."""
    fs: AbstractFileSystem
    """The fsspec file system that has it."""
    path: str
    """Its name in that file system."""
    size: int | None
    """Bytes; None where the server does not say."""
    version: str
    """What the server changes with the content (ETag, time); empty where it says nothing."""

    @property
    def is_local(self) -> bool:
        """Whether the file lies on this machine and is read where it is."""
        return _is_local(self.fs)

    @property
    def name(self) -> str:
        """The file's own name, without folders and query."""
        path = self.path if self.is_local else urlsplit(self.path).path
        return posixpath.basename(path.rstrip("/")) or "download"

    @property
    def shown(self) -> str:
        """The address for messages."""
        return self.path if self.is_local else redacted(self.url)

    @property
    def recorded(self) -> str:
        """The address for manifest.json: without secrets and without this machine's folders."""
        if not self.is_local:
            return redacted(self.url)
        path, here = Path(os.path.normpath(self.path)), Path.cwd()
        return path.relative_to(here).as_posix() if path.is_relative_to(here) else self.name


def store() -> Path:
    """Folder of fetched files; unlike data/raw it outlives DVC's emptying of outputs."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dayahead" / "downloads"


def listed(urls: Sequence[str], manual: str | None) -> tuple[SourceFile, ...]:
    """Find every file the URLs name, in their order, the matches of a glob sorted by name.

    Raises:
        SourceError: an address that cannot be reached or finds nothing; ends with `manual`.
    """
    advice = manual or "Check the address in source.urls of the data set's file"
    found = {file.url: file for url in urls for file in _matches(url, advice)}
    return tuple(found.values())


def _matches(url: str, advice: str) -> list[SourceFile]:
    try:
        fs, path = url_to_fs(url, **(_HTTP if re.match(r"https?://", url) else {}))
        files = [_described(fs, url, match) for match in _paths(fs, path)]
    except Exception as error:  # noqa: BLE001 - every file system has its own kinds
        raise SourceError(f"{redacted(url)}: cannot be read: {_told(error)}. {advice}") from None
    if not files:
        raise SourceError(f"{redacted(url)}: no file matches. {advice}")
    return files


def _paths(fs: AbstractFileSystem, path: str) -> list[str]:
    magic = r"[*\[]" if path.startswith("http") else r"[*?\[]"
    if re.search(magic, path) is None or (_is_local(fs) and fs.exists(path)):
        return [path]
    return sorted(match for match in fs.glob(path) if fs.isfile(match))


def _described(fs: AbstractFileSystem, url: str, path: str) -> SourceFile:
    info = fs.info(path)
    if info["type"] == "directory":
        raise IsADirectoryError("it is a folder; name the files in it, for example with *.csv.gz")
    version = next((str(info[key]) for key in _VERSION_KEYS if info.get(key)), "")
    is_named = _is_local(fs) or fs._strip_protocol(url) != path
    own_url = fs.unstrip_protocol(path) if is_named else url
    return SourceFile(own_url, fs, path, info.get("size"), version)


def _is_local(fs: AbstractFileSystem) -> bool:
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def _told(error: BaseException) -> str:
    """Say what went wrong, in the words of the error that began it, without secrets."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the server answers {error.status} {error.message}"
    text = redacted(" ".join(str(error).split()).rstrip("."))
    return "no such file" if isinstance(error, FileNotFoundError) else text or type(error).__name__


def fetched(file: SourceFile, expected_sha256: str | None) -> tuple[Path, str]:
    """Bring a file to this machine, unless it is here, and verify it.

    A fetch that was cut off goes on where it ended; one whose file has changed on the server
    begins anew.

    Returns:
        A path to read it from, and the sha256 of its content.

    Raises:
        SourceError: the server fails again and again, or the checksum is wrong.
    """
    if file.is_local:
        path = Path(file.path)
        return path, _verified(path, file, expected_sha256)
    slot = store() / hashlib.sha256(file.url.encode()).hexdigest()[:16]
    slot.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{slot}.lock"):  # experiments of a queue share the store
        path = _in_slot(file, slot)
        try:
            return path, _verified(path, file, expected_sha256)
        except SourceError:
            shutil.rmtree(slot)
            raise


def _in_slot(file: SourceFile, slot: Path) -> Path:
    state_path = slot / ".state.json"
    state = {"url": file.shown, "size": file.size, "version": file.version}
    tells_changes = file.size is not None or file.version
    if not (tells_changes and state_path.is_file() and read_json(state_path) == state):
        shutil.rmtree(slot, ignore_errors=True)
        write_json(state_path, state)
    path = slot / file.name
    if not path.is_file():
        part = slot / f"{file.name}.part"
        _log.info("fetching %s", file.shown)
        _complete(file, part)
        part.replace(path)
    return path


def _verified(path: Path, file: SourceFile, expected: str | None) -> str:
    try:
        found = sha256_of(path)
    except OSError as error:
        raise SourceError(f"{file.shown}: cannot be read: {_told(error)}") from None
    if expected is not None and found != expected.lower():
        raise SourceError(
            f"{file.shown}: wrong checksum: expected sha256 {expected}, found {found}. Run again "
            f"to fetch it anew; if it stays, the publisher has changed the file: look at it, then "
            f"correct source.sha256"
        )
    return found


class _CutOffError(Exception):
    """Reading from a server ended before the file did."""


def _complete(file: SourceFile, part: Path) -> None:
    """Append to `part` what is missing, again while the server gives new bytes."""
    failures = 0
    streaming = False
    with tqdm(total=file.size, unit="B", unit_scale=True, desc=file.name, disable=None) as bar:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                _append(file, part, bar, streaming=streaming)
            except _CutOffError as error:
                failures = 1 if part.stat().st_size > before else failures + 1
                streaming = streaming or isinstance(error.__cause__, ValueError)
                if failures == ATTEMPTS:
                    raise SourceError(
                        f"{file.shown}: cut off at {part.stat().st_size} of {file.size} bytes, "
                        f"{ATTEMPTS} times: {_told(error)}. Run again to go on from there"
                    ) from None
                time.sleep(PAUSE * 2 ** (failures - 1))
            else:
                return


def _append(file: SourceFile, part: Path, bar: tqdm, *, streaming: bool) -> None:
    with part.open("ab") as out:
        if file.size is not None and out.tell() > file.size:
            out.truncate(0)
        bar.n = out.tell()
        for chunk in _chunks(file, out.tell(), streaming=streaming):
            out.write(chunk)
            bar.update(len(chunk))
        if file.size is not None and out.tell() != file.size:
            raise _CutOffError("the connection was closed early")


def _chunks(file: SourceFile, start: int, *, streaming: bool) -> Iterator[bytes]:
    """Read from byte `start` on; `streaming` where the server knows no ranges."""
    try:
        block_size = 0 if streaming else CHUNK
        # Without a cache a read asks for just its bytes, and a broken one loses no more than these.
        with file.fs.open(file.path, "rb", block_size=block_size, cache_type="none") as stream:
            _skip(stream, start)
            while chunk := stream.read(CHUNK):
                yield chunk
    except Exception as error:
        raise _CutOffError from error


def _skip(stream: IO[bytes], start: int) -> None:
    try:
        stream.seek(start)
    except ValueError:  # a stream that only goes forward: read past what is here already
        while start > 0 and (chunk := stream.read(min(start, CHUNK))):
            start -= len(chunk)
