"""A source's files, wherever fsspec finds them: listed, fetched, continued, verified."""

import hashlib
import logging
import os
import posixpath
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from tqdm import tqdm

from dayahead.core.errors import SourceError, redacted
from dayahead.core.files import read_json, write_json, write_text
from dayahead.core.fingerprints import sha256_of
from dayahead.core.project import cache_root
from dayahead.core.space import require_space
from dayahead.download.servers import HTTP, retried, told
from dayahead.download.transfer import Transfer

_VERSION_KEYS = ("ETag", "Last-Modified", "LastModified", "etag", "mtime", "updated", "created")
LONGEST_NAME = 200
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
        if self.is_local:
            return posixpath.basename(self.path)
        # Not hidden: names with a dot before them are the store's, and .. is the folder above.
        name = posixpath.basename(urlsplit(self.path).path.rstrip("/"))
        return name.lstrip(".")[-LONGEST_NAME:] or "download"

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
        fs, path = url_to_fs(url, **(HTTP if re.match(r"https?://", url) else {}))
        files = retried(
            lambda: [_described(fs, url, match) for match in _paths(fs, path)], redacted(url)
        )
    except Exception as error:  # noqa: BLE001 - every file system has its own kinds
        raise SourceError(f"{redacted(url)}: cannot be read: {told(error)}. {advice}") from None
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


def require_room(files: Sequence[SourceFile]) -> None:
    """Check, before the first byte, that the store has room for all that is still to be fetched.

    Files whose server does not tell a size are not counted.

    Raises:
        DataError: the disk has less free.
    """
    missing = [_missing_bytes(file) for file in files if not file.is_local]
    require_space(_store(), sum(missing), f"fetching {sum(n > 0 for n in missing)} files")


def _missing_bytes(file: SourceFile) -> int:
    slot = _slot(file)
    if not _is_current(file, slot):
        return file.size or 0
    if (slot / file.name).exists():
        return 0
    part = slot / f"{file.name}.part"
    held = part.stat().st_blocks * 512 if part.exists() else 0  # it has holes
    return max(0, (file.size or 0) - held)


def _store() -> Path:
    return cache_root() / "downloads"


def _slot(file: SourceFile) -> Path:
    return _store() / hashlib.sha256(file.url.encode()).hexdigest()[:16]


def fetched(file: SourceFile, expected_sha256: str | None) -> tuple[Path, str]:
    """Bring a file to this machine, unless it is here, and verify it.

    A fetch that was cut off goes on with what is missing; one whose file has changed on the
    server begins anew.

    Returns:
        A path to read it from, and the sha256 of its content.

    Raises:
        SourceError: the server fails again and again, the file is shorter or longer than the
            server says, it changes while it is fetched, or the checksum is wrong.
        DataError: too little space.
    """
    if file.is_local:
        path = Path(file.path)
        try:
            found = sha256_of(path)
        except OSError as error:
            raise SourceError(f"{file.shown}: cannot be read: {told(error)}") from None
        _check(found, file, expected_sha256)
        return path, found
    slot = _slot(file)
    slot.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{slot}.lock"):  # experiments of a queue share the store
        return slot / file.name, _kept(file, slot, expected_sha256)


def _kept(file: SourceFile, slot: Path, expected: str | None) -> str:
    """Have the file in its slot, fetched if need be, and return its sha256."""
    path, note = slot / file.name, slot / ".sha256"
    if not (_is_current(file, slot) and path.is_file()):
        _fetch(file, slot, is_verified=expected is not None)
    os.utime(slot)  # what was of use lately is kept
    found = sha256_of(path)
    if note.exists() and note.read_text(encoding="utf-8") != found:
        _log.warning("%s: its copy in the store is damaged, and fetched anew", file.shown)
        shutil.rmtree(slot)
        return _kept(file, slot, expected)
    try:
        _check(found, file, expected)
    except SourceError:
        shutil.rmtree(slot)
        raise
    write_text(note, found)
    return found


def _state(file: SourceFile) -> dict[str, object]:
    return {"url": file.shown, "size": file.size, "version": file.version}


def _is_current(file: SourceFile, slot: Path) -> bool:
    """Tell whether what the slot holds is of the file as the server has it now."""
    tells_changes = file.size is not None or file.version
    try:
        return bool(tells_changes) and read_json(slot / ".state.json") == _state(file)
    except (OSError, ValueError):  # not there, or damaged
        return False


def _check(found: str, file: SourceFile, expected: str | None) -> None:
    if expected is not None and found != expected.lower():
        raise SourceError(
            f"{file.shown}: wrong checksum: expected sha256 {expected}, found {found}. Run again "
            f"to fetch it anew; if it stays, the publisher has changed the file: look at it, then "
            f"correct source.sha256"
        )


def _fetch(file: SourceFile, slot: Path, *, is_verified: bool) -> None:
    if not _is_current(file, slot):
        shutil.rmtree(slot, ignore_errors=True)
        write_json(slot / ".state.json", _state(file))
    require_room([file])
    part = slot / f"{file.name}.part"
    _log.info("fetching %s", file.shown)
    with tqdm(total=file.size, unit="B", unit_scale=True, desc=file.name, disable=None) as bar:
        try:
            Transfer(file.fs, file.path, file.size, part, bar).run()
            if not is_verified:  # a checksum tells more than a version
                _check_unchanged(file, slot)
        except Exception as error:  # noqa: BLE001 - every file system has its own kinds
            raise SourceError(
                f"{file.shown}: cannot be fetched: {told(error)}. Run again to "
                f"fetch what is missing"
            ) from None
    part.replace(slot / file.name)


def _check_unchanged(file: SourceFile, slot: Path) -> None:
    file.fs.invalidate_cache()
    now = retried(lambda: _described(file.fs, file.url, file.path), file.shown)
    if _state(now) != _state(file):
        shutil.rmtree(slot)  # parts of two versions
        raise ValueError("the file changed on the server meanwhile")
