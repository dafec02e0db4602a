"""The files of a data set's source: listed, fetched into the cache once, and verified."""

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

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from tqdm import tqdm

from dayahead.core.cache import Cache, recorded_hashes
from dayahead.core.errors import SourceError, UnreachableError
from dayahead.core.files import require_space
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.core.project import cache_root
from dayahead.core.redaction import CHAIN, public_url
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.members import is_junk
from dayahead.download.transfer import HTTP, Transfer, describe_error, retry

MAX_NAME_LENGTH = 200
"""Maximum number of bytes of a file name; file systems allow 255."""
_VERSION_KEYS = ("ETag", "Last-Modified", "LastModified", "etag", "mtime", "updated", "created")
_CONTENT = "content"
"""Folder of the file in its cache entry, so that its name cannot clash with the cache's files."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, as its server or folder lists it."""

    url: str
    """May hold credentials: use `shown` in messages and `recorded` in files."""
    fs: AbstractFileSystem
    path: str
    """Its path in `fs`."""
    size: int | None
    """Bytes; None: the server does not say."""
    version: str
    """Value that the server changes with the content (ETag, time); empty: not reported."""

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, where it is read without a copy."""
        return isinstance(self.fs, LocalFileSystem)

    @property
    def name(self) -> str:
        """The file's own name, without folders and query."""
        if self.is_local:
            return posixpath.basename(self.path)
        # No leading dots: they would hide the file, or name the parent folder.
        path = urlsplit(self.path).path.partition(";")[0]  # ;token=...
        name = posixpath.basename(path.rstrip("/"))
        end = name.lstrip(".").encode()[-MAX_NAME_LENGTH:].decode(errors="ignore")
        return end or "download"

    @property
    def shown(self) -> str:
        """The address for messages."""
        return self.path if self.is_local else public_url(self.url)

    @property
    def recorded(self) -> str:
        """The address for manifest.json: without secrets and without folders of this machine."""
        if not self.is_local:
            return public_url(self.url)
        return recorded_path(self.path)


def recorded_path(local: str) -> str:
    """Return a local path for manifest.json: as of the project, else the name alone."""
    path, here = Path(os.path.normpath(local)), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


@dataclass(frozen=True)
class Source:
    """Input of the conversion: a verified local file or, if `path` is None, the generated log."""

    url: str
    """Address for manifest.json."""
    file: str
    """Its own name, whose endings say how it is compressed."""
    shown: str
    """Address for messages."""
    bytes: int
    sha256: str
    """Hash of its content, or of the generator's settings."""
    path: Path | None


def fetch_sources(dataset: DatasetConfig, name: str) -> list[Source]:
    """List and fetch all files of a data set, before any is converted, so that errors come early.

    Raises:
        SourceError: a file is missing, damaged, or not the one that `source.sha256` names.
        DataError: too little disk space.
    """
    if dataset.source.synthetic is not None:
        config = dataset.source.synthetic
        settings = fingerprint({"config": repr(config)} | ({"shop": True} if config.shop else {}))
        return [Source("synthetic", "synthetic", "synthetic", 0, settings, None)]
    files = list_files(dataset.source.urls, dataset.source.manual)
    if unknown := sorted(set(dataset.source.sha256) - {file.name for file in files}):
        raise SourceError(
            f"datasets/{name}.yaml: source.sha256 names {', '.join(unknown)}, but source.urls "
            f"finds only {', '.join(file.name for file in files)[:300]}"
        )
    require_space_for(files)
    return [fetch(file, dataset.source.sha256.get(file.name)) for file in files]


def list_files(urls: Sequence[str], manual: str | None) -> tuple[SourceFile, ...]:
    """Find every file that the URLs name, in their order, the matches of a glob sorted by name.

    Raises:
        SourceError: a URL is none, cannot be reached or matches no file; ends with `manual`.
    """
    advice = manual or (
        "Check the address in source.urls of the data set's file; `dvc pull` fetches a log that "
        "another has converted and pushed"
    )
    found = {file.url: file for url in urls for file in _matches(url, advice)}
    return tuple(found.values())


def shown_url(url: str) -> str:
    """Return a URL for messages."""
    return " ".join(public_url(url).split())


def checked_url(url: str) -> str:
    """Return a URL for messages, if it is unambiguous which part of it is secret.

    Raises:
        SourceError: it is not.
    """
    shown = shown_url(url)
    for part in CHAIN.split(url):
        scheme, mark, rest = part.partition("://")
        is_http = scheme.strip().lower() in ("http", "https")
        # Names of objects in a store are not encoded and may contain any character.
        exposed = part if is_http else scheme + re.sub(r"/[^?#;]*", "", rest, count=1)
        if mark and (
            public_url(part).endswith("://***") or re.search(r"[\s'\"<>\0-\x1f]", exposed)
        ):
            raise SourceError(
                f"source.urls: {shown}: not a URL: percent-encode blanks, quotes, < and > (%20, "
                f"%22, %27, %3C, %3E), and in user and password all but letters and digits"
            )
    return shown


def _matches(url: str, advice: str) -> list[SourceFile]:
    shown = checked_url(url)
    try:
        fs, path = url_to_fs(url, **(HTTP if re.match(r"https?://", url) else {}))
        files = retry(lambda: [_stat(fs, url, match) for match in _paths(fs, path)], shown)
    except Exception as error:  # noqa: BLE001 - every file system raises its own kinds
        reason = describe_error(error)
        raise UnreachableError(f"{shown}: cannot be read: {reason}. {advice}") from None
    if not files:
        raise UnreachableError(f"{shown}: no file matches. {advice}")
    return files


def _paths(fs: AbstractFileSystem, path: str) -> list[str]:
    # In an HTTP address, "?" starts the query.
    magic = r"[*\[]" if path.startswith("http") else r"[*?\[]"
    is_file_name = isinstance(fs, LocalFileSystem) and fs.exists(path)
    if is_file_name or re.search(magic, path) is None:
        return [path]
    found = (match for match in fs.glob(path) if fs.isfile(match))
    return sorted(match for match in found if not is_junk(posixpath.basename(match)))


def _stat(fs: AbstractFileSystem, url: str, path: str) -> SourceFile:
    info = fs.info(path)
    if info["type"] == "directory":
        raise IsADirectoryError("it is a folder; name the files in it, for example with *.csv.gz")
    version = next((str(info[key]) for key in _VERSION_KEYS if info.get(key)), "")
    is_own_url = not isinstance(fs, LocalFileSystem) and fs._strip_protocol(url) == path
    own_url = url if is_own_url else fs.unstrip_protocol(path)
    return SourceFile(own_url, fs, path, info.get("size"), version)


def require_space_for(files: Sequence[SourceFile]) -> None:
    """Raise DataError if the disk lacks space for what is missing; unknown sizes count as 0."""
    missing = [_missing_bytes(file) for file in files if not file.is_local]
    require_space(_cache().folder, sum(missing), f"fetching {sum(n > 0 for n in missing)} files")


def _missing_bytes(file: SourceFile) -> int:
    if _key(file) in _cache():
        return 0
    partial = _cache().partial(_key(file)) / _CONTENT / file.name
    present = partial.stat().st_blocks * 512 if partial.exists() else 0  # the file is sparse
    return max(0, (file.size or 0) - present)


def _cache() -> Cache:
    return Cache(cache_root() / "downloads")


def _key(file: SourceFile) -> str:
    # The address comes first: other versions of the file are found by this prefix, and removed.
    address = hashlib.sha256(file.url.encode()).hexdigest()
    return f"{address[:16]}-{fingerprint({'size': file.size, 'version': file.version})[:16]}"


def fetch(file: SourceFile, expected_sha256: str | None) -> Source:
    """Fetch a file into the cache, unless it is there or local, and verify it.

    An interrupted download is resumed. If the file has changed on the server, or its server reports
    neither size nor version, it is fetched from the beginning.

    Raises:
        SourceError: the server keeps failing, the size or the checksum is wrong, or the file
            changes during the download.
        DataError: too little disk space.
    """
    if file.is_local:
        path = Path(file.path)
        try:
            found = sha256_of(path)
        except OSError as error:
            raise UnreachableError(
                f"{file.shown}: cannot be read: {describe_error(error)}"
            ) from None
    else:
        path, found = _fetch_once(file, is_verified=expected_sha256 is not None)
    if expected_sha256 is not None and found != expected_sha256.lower():
        if not file.is_local:
            _cache().remove([_key(file)])
        raise SourceError(
            f"{file.shown}: wrong checksum: expected sha256 {expected_sha256}, found {found}. Run "
            f"again to fetch it again; if the error persists, the publisher has changed the file: "
            f"check it, then correct source.sha256"
        )
    return Source(file.recorded, file.name, file.shown, path.stat().st_size, found, path)


def _fetch_once(file: SourceFile, *, is_verified: bool) -> tuple[Path, str]:
    """Return the file in the cache and its sha256."""
    cache, key, name = _cache(), _key(file), f"{_CONTENT}/{file.name}"
    is_versioned = file.size is not None or file.version
    cache.remove_superseded(key.partition("-")[0], key if is_versioned else None)
    return cache.get_or_build(
        key,
        lambda folder: _fetch(file, folder / name, is_verified=is_verified),
        lambda folder: (folder / name, recorded_hashes(folder)[name]),
        is_resumed=True,
    )


def _fetch(file: SourceFile, target: Path, *, is_verified: bool) -> None:
    require_space_for([file])
    target.parent.mkdir(exist_ok=True)
    _log.info("fetching %s", file.shown)
    with tqdm(total=file.size, unit="B", unit_scale=True, desc=file.name, disable=None) as bar:
        try:
            Transfer(file.fs, file.path, file.size, target, bar).run()
            if not is_verified:  # else the checksum will show any change
                _check_unchanged(file, target.parent)
        except Exception as error:  # noqa: BLE001 - every file system raises its own kinds
            raise UnreachableError(
                f"{file.shown}: cannot be fetched: {describe_error(error)}. Run again to fetch "
                f"what is missing"
            ) from None


def _check_unchanged(file: SourceFile, folder: Path) -> None:
    file.fs.invalidate_cache()
    now = retry(lambda: _stat(file.fs, file.url, file.path), file.shown)
    if (now.size, now.version) != (file.size, file.version):
        shutil.rmtree(folder)  # its segments may be of two versions
        raise ValueError("the file changed on the server during the download")
