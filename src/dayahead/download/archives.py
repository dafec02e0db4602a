"""Compressed files and archives as streams of plain bytes."""

import io
import lzma
import posixpath
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import py7zr
import pyarrow as pa
from py7zr.exceptions import ArchiveError, PasswordRequired

from dayahead.core.errors import SourceError
from dayahead.core.files import require_space

FREE_BYTES = 1 << 30
"""Size to which any file may unpack."""
MAX_RATIO = 200
"""Maximum unpacked bytes per packed byte beyond FREE_BYTES; logs reach 10, zip bombs 1000."""
_CODECS = {".gz": "gzip", ".tgz": "gzip", ".zst": "zstd"}
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.zst")
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


@contextmanager
def wrap_errors(name: str) -> Iterator[None]:
    """Convert decoding errors to SourceError with the file name."""
    try:
        yield
    except _DECODING_ERRORS as error:
        raise SourceError(
            f"{name}: damaged, or not what its name says: {error}. Fetch or copy it again"
        ) from None


def raw_files(path: Path, name: str, members: Sequence[str], scratch: Path) -> Iterator[RawFile]:
    """Open the files in `path` one after the other; each must be read before the next.

    Args:
        path: a local file; its ending tells the kind (gz, zst, zip, 7z, tar, tar.gz, tar.zst).
        name: for messages.
        members: globs, matched from the right as file names are; an archive's member is read if
            any of them matches, in the archive's order.
        scratch: an existing folder, used for what can only be read unpacked (7z).

    Raises:
        SourceError: damaged, protected, a member outside the archive's folder, two of one name, or
            no match.
        DataError: too little space in `scratch`.
    """
    lower = path.name.lower()
    with wrap_errors(name):
        if lower.endswith(".zip"):
            found = _zip_members(path, name, members)
        elif lower.endswith(".7z"):
            found = _seven_zip_members(path, name, members, scratch)
        elif lower.endswith(_TAR):
            found = _tar_members(path, name, members)
        else:
            found = _single_file(path, name)
        n_left = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
        for raw in found:
            if isinstance(raw.stream, pa.OSFile):
                yield raw
                continue
            bounded = _BoundedStream(raw.stream, raw.name, n_left)
            yield RawFile(raw.name, bounded)
            n_left = bounded.n_left


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


def _single_file(path: Path, name: str) -> Iterator[RawFile]:
    with pa.OSFile(str(path)) as file:
        yield RawFile(name, _decompressed(file, path.name))


def _decompressed(stream: IO[bytes], name: str) -> IO[bytes]:
    codec = _CODECS.get(PurePosixPath(name.lower()).suffix)
    return pa.CompressedInputStream(stream, codec) if codec else stream


def _select(found: Iterable[str], members: Sequence[str], name: str) -> list[str]:
    """Return the members that match, in the archive's order.

    Raises:
        SourceError: there is none, two have one name, or one is outside the archive's folder.
    """
    found = list(found)
    selected = [member for member in found if _is_match(member, members)]
    if not selected:
        raise SourceError(
            f"{name}: no file in it matches source.members {', '.join(members)}; it holds "
            f"{', '.join(found[:10]) or 'nothing'}"
        )
    paths = Counter(posixpath.normpath(member.replace("\\", "/")) for member in selected)
    if twice := [path for path, n in paths.items() if n > 1]:
        raise SourceError(
            f"{name}: holds two files called {twice[0]}: expected one. Unpack it by hand and list "
            f"the right one in source.urls, or leave them out by source.members"
        )
    for member in selected:
        _check_inside(member, name)
    return selected


def _is_match(member: str, globs: Sequence[str]) -> bool:
    return any(PurePosixPath(member).match(glob) for glob in globs)


def _check_inside(member: str, name: str) -> None:
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{name}: member {member!r} would be extracted outside the target folder")


def _zip_members(path: Path, name: str, members: Sequence[str]) -> Iterator[RawFile]:
    with zipfile.ZipFile(path) as archive:
        files = (info.filename for info in archive.infolist() if not info.is_dir())
        for member in _select(files, members, name):
            with archive.open(member) as stream:
                yield RawFile(f"{name}::{member}", _decompressed(stream, member))


def _seven_zip_members(
    path: Path, name: str, members: Sequence[str], scratch: Path
) -> Iterator[RawFile]:
    with tempfile.TemporaryDirectory(dir=scratch) as unpacked, py7zr.SevenZipFile(path) as archive:
        files = [info for info in archive.list() if info.is_file]
        sizes = {info.filename: info.uncompressed for info in files}
        selected = _select((info.filename for info in files), members, name)
        # 7z has no streams of members: they are unpacked to the disk.
        require_space(scratch, sum(sizes[member] for member in selected), f"unpacking {name}")
        archive.extract(unpacked, targets=selected)
        for member in selected:
            with pa.OSFile(str(Path(unpacked) / member)) as stream:
                yield RawFile(f"{name}::{member}", _decompressed(stream, member))


def _tar_members(path: Path, name: str, members: Sequence[str]) -> Iterator[RawFile]:
    """Read a tar from front to back; nothing is extracted to the disk."""
    found = []
    with (
        pa.OSFile(str(path)) as file,
        # "r|": a compressed stream cannot be sought in.
        tarfile.open(fileobj=_decompressed(file, path.name), mode="r|") as archive,
    ):
        for info in archive:
            if not info.isreg():
                continue
            found.append(info.name)
            if _is_match(info.name, members):
                _check_inside(info.name, name)
                stream = cast("IO[bytes]", archive.extractfile(info))  # None only for other kinds
                yield RawFile(f"{name}::{info.name}", _decompressed(stream, info.name))
    # A tar has no index, so only now is it known whether members match and names are unique.
    _select(found, members, name)
