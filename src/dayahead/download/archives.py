"""Compressed files and archives as streams of plain bytes."""

import errno
import io
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import py7zr
import pyarrow as pa
from py7zr.exceptions import ArchiveError, PasswordRequired

from dayahead.core.errors import DataError, SourceError, cure_of
from dayahead.core.files import require_space
from dayahead.download.compression import ARCHIVES, decompressed
from dayahead.download.members import EVERY, check_inside, is_match, select

FREE_BYTES = 1 << 30
"""Size to which any file may unpack."""
MAX_RATIO = 200
"""Maximum unpacked bytes per packed byte beyond FREE_BYTES; logs reach 10, zip bombs 1000."""
_DECODING_ERRORS = (
    OSError,
    EOFError,
    RuntimeError,  # zipfile on a member with a password
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    ArchiveError,
    PasswordRequired,
)


@dataclass(frozen=True)
class RawFile:
    """A file of rows, unpacked while it is read."""

    name: str
    """Name for messages: the source's address, with ::member inside an archive."""
    stream: Any
    """Bytes, forward only; a pyarrow.OSFile if the file is local and not compressed."""
    kind: str = ""
    """What the bytes are: parquet, or empty for text."""
    head: bytes = b""
    """The first bytes."""


@contextmanager
def wrap_errors(name: str) -> Iterator[None]:
    """Convert decoding errors to SourceError with the file name, a full disk to DataError."""
    try:
        yield
    except _DECODING_ERRORS as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{name}: cannot be unpacked: {error}; {cure_of(error)}") from None
        shown = " ".join(str(error).split()).rstrip(".")
        raise SourceError(
            f"{name}: damaged, or not what its name says: {shown}. Fetch or copy it again"
        ) from None


def raw_files(path: Path, name: str, members: Sequence[str], scratch: Path) -> Iterator[RawFile]:
    """Open the files in `path` one after the other; each must be read before the next.

    Args:
        path: a local file; its content tells the kind (gz, zst, bz2, xz, lz4, zip, 7z, tar).
        name: for messages.
        members: globs, matched from the right as file names are; an archive's member is read if
            any of them matches, in the archive's order.
        scratch: an existing folder, used for what can only be read unpacked (7z).

    Raises:
        SourceError: damaged, protected, of a kind that cannot be read, a member outside the
            archive's folder, two of one name, no match, or an ambiguous one.
        DataError: too little space in `scratch`.
    """
    with wrap_errors(name):
        n_left = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
        for raw in _members(path, name, members, scratch):
            if isinstance(raw.stream, pa.OSFile):
                yield raw
                continue
            bounded = _BoundedStream(raw.stream, raw.name, n_left)
            yield replace(raw, stream=bounded)
            n_left = bounded.n_left


def _members(path: Path, name: str, members: Sequence[str], scratch: Path) -> Iterator[RawFile]:
    with pa.OSFile(str(path)) as file:
        stream, kind, head = decompressed(file, name)
        is_plain = stream is file
        if kind == "zip" and is_plain:
            yield from _zip_members(path, name, members)
        elif kind == "7z" and is_plain:
            yield from _seven_zip_members(path, name, members, scratch)
        elif kind == "tar":
            yield from _tar_members(path, stream, name, members)
        else:
            yield _raw_file(name, stream, kind, head)


def _raw_file(name: str, stream: IO[bytes], kind: str, head: bytes) -> RawFile:
    if kind in ARCHIVES:
        raise SourceError(
            f"{name}: is a {kind} archive within another file. Unpack the outer one by hand and "
            f"list what is in it in source.urls, or leave it out by source.members"
        )
    return RawFile(name, stream, kind, head)


class _BoundedStream(io.RawIOBase):
    """A stream that fails after `n_left` bytes, to stop zip bombs."""

    def __init__(self, stream: IO[bytes], name: str, n_left: int) -> None:
        self._stream = stream
        self._name = name
        self.n_left = n_left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        data = self._stream.read(len(buffer))
        self.n_left -= len(data)
        if self.n_left < 0:
            raise SourceError(
                f"{self._name}: unpacks to more than {MAX_RATIO} times its size, like a zip bomb; "
                f"if it is a real log, unpack it by hand and list that file in source.urls"
            )
        buffer[: len(data)] = data
        return len(data)


def _member(name: str, stream: IO[bytes]) -> RawFile:
    return _raw_file(name, *decompressed(stream, name))


def _zip_members(path: Path, name: str, members: Sequence[str]) -> Iterator[RawFile]:
    with zipfile.ZipFile(path) as archive:
        files = [info.filename for info in archive.infolist() if not info.is_dir()]
        if "[Content_Types].xml" in files:
            raise SourceError(
                f"{name}: is an Office document, such as an Excel workbook. Save its table as csv, "
                f"and list that file in source.urls"
            )
        for member in select(files, members, name):
            with archive.open(member) as stream:
                yield _member(f"{name}::{member}", stream)


def _seven_zip_members(
    path: Path, name: str, members: Sequence[str], scratch: Path
) -> Iterator[RawFile]:
    with tempfile.TemporaryDirectory(dir=scratch) as unpacked, py7zr.SevenZipFile(path) as archive:
        files = [info for info in archive.list() if info.is_file]
        sizes = {info.filename: info.uncompressed for info in files}
        selected = select((info.filename for info in files), members, name)
        # 7z has no streams of members: they are unpacked to the disk.
        require_space(scratch, sum(sizes[member] for member in selected), f"unpacking {name}")
        archive.extract(unpacked, targets=selected)
        for member in selected:
            with pa.OSFile(str(Path(unpacked) / member)) as stream:
                yield _member(f"{name}::{member}", stream)


def _tar_members(
    path: Path, stream: IO[bytes], name: str, members: Sequence[str]
) -> Iterator[RawFile]:
    """Read a tar from front to back; nothing is extracted to the disk."""
    # A tar has no index: where the names decide, it is read twice.
    chosen = select(_tar_names(path, name), members, name) if tuple(members) == EVERY else None
    found = []
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # a compressed stream cannot seek
        for info in archive:
            if not info.isreg():
                continue
            found.append(info.name)
            if is_match(info.name, members) if chosen is None else info.name in chosen:
                check_inside(info.name, name)
                content = cast("IO[bytes]", archive.extractfile(info))  # None for other kinds
                yield _member(f"{name}::{info.name}", content)
    if chosen is None:  # only now is it known whether members match and names are unique
        select(found, members, name)


def _tar_names(path: Path, name: str) -> list[str]:
    with pa.OSFile(str(path)) as file:
        stream, *_ = decompressed(file, name)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            return [info.name for info in archive if info.isreg()]
