"""What lies in a compressed file or an archive, as streams of plain bytes."""

import io
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import py7zr
import pyarrow as pa
from py7zr.exceptions import ArchiveError, PasswordRequired

from dayahead.core.errors import SourceError
from dayahead.core.space import require_space

_CODECS = {".gz": "gzip", ".tgz": "gzip", ".zst": "zstd"}
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_DAMAGE = (
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


FREE_BYTES = 1 << 30
"""What anything may unpack to."""
LARGEST_RATIO = 200
"""Beyond that, bytes unpacked for each that is packed: logs come to 5 or 10, bombs to 1000."""


@dataclass(frozen=True)
class RawFile:
    """A file of rows, unpacked while it is read."""

    name: str
    """For messages: the source's address, with ::member inside an archive."""
    stream: Any
    """Bytes, forward only; a pyarrow.OSFile where the file lies plainly on disk."""


@contextmanager
def damage_told(name: str) -> Iterator[None]:
    """Turn what a broken file makes of its reader into a SourceError that names it."""
    try:
        yield
    except _DAMAGE as error:
        raise SourceError(
            f"{name}: damaged, or not what its name says: {error}. Fetch or copy it again"
        ) from None


def raw_files(path: Path, name: str, members: Sequence[str], scratch: Path) -> Iterator[RawFile]:
    """Open what is in `path`, one file after the other; read each before asking for the next.

    Args:
        path: A local file; its ending tells the kind (gz, zst, zip, 7z, tar, tar.gz, tar.zst).
        name: What messages call it.
        members: Globs over an archive's members, matched from the right as file names are; a
            member is read where any of them matches, in the archive's order.
        scratch: An existing folder for what can only be read unpacked (7z).

    Raises:
        SourceError: damaged, protected, a member that would leave the folder, or no match.
        DataError: too little space in `scratch`.
    """
    lower = path.name.lower()
    with damage_told(name):
        if lower.endswith(".zip"):
            found = _in_zip(path, name, members)
        elif lower.endswith(".7z"):
            found = _in_seven_zip(path, name, members, scratch)
        elif lower.endswith(_TAR):
            found = _in_tar(path, name, members)
        else:
            found = _alone(path, name)
        n_left = max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)
        for raw in found:
            if isinstance(raw.stream, pa.OSFile):
                yield raw
                continue
            bounded = _Bounded(raw.stream, raw.name, n_left)
            yield RawFile(raw.name, bounded)
            n_left = bounded.n_left


class _Bounded(io.RawIOBase):
    """A stream that may not unpack to more than is sensible."""

    def __init__(self, stream: IO[bytes], name: str, n_left: int) -> None:
        self._stream = stream
        self._name = name
        self.n_left = n_left

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        """Read some bytes."""
        data = self._stream.read(len(buffer))
        self.n_left -= len(data)
        if self.n_left < 0:
            raise SourceError(
                f"{self._name}: unpacks to more than {LARGEST_RATIO} times its size, as no log "
                f"does; where it is one, unpack it by hand and name the file itself"
            )
        buffer[: len(data)] = data
        return len(data)


def _alone(path: Path, name: str) -> Iterator[RawFile]:
    with pa.OSFile(str(path)) as file:
        yield RawFile(name, _plain(file, path.name))


def _plain(stream: IO[bytes], name: str) -> IO[bytes]:
    codec = _CODECS.get(PurePosixPath(name.lower()).suffix)
    return pa.CompressedInputStream(stream, codec) if codec else stream


def _chosen(found: Iterable[str], members: Sequence[str], name: str) -> list[str]:
    """Return the members wanted, in the archive's order."""
    found = list(found)
    chosen = [member for member in found if _matches(member, members)]
    if not chosen:
        raise SourceError(
            f"{name}: no file in it matches source.members {', '.join(members)}; it holds "
            f"{', '.join(found[:10]) or 'nothing'}"
        )
    for member in chosen:
        _check_inside(member, name)
    return chosen


def _matches(member: str, globs: Sequence[str]) -> bool:
    return any(PurePosixPath(member).match(glob) for glob in globs)


def _check_inside(member: str, name: str) -> None:
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{name}: its member {member!r} would be written outside its folder")


def _in_zip(path: Path, name: str, members: Sequence[str]) -> Iterator[RawFile]:
    with zipfile.ZipFile(path) as archive:
        files = (info.filename for info in archive.infolist() if not info.is_dir())
        for member in _chosen(files, members, name):
            with archive.open(member) as stream:
                yield RawFile(f"{name}::{member}", _plain(stream, member))


def _in_seven_zip(
    path: Path, name: str, members: Sequence[str], scratch: Path
) -> Iterator[RawFile]:
    with (
        tempfile.TemporaryDirectory(dir=scratch) as unpacked,
        py7zr.SevenZipFile(path) as archive,
    ):
        sizes = {info.filename: info.uncompressed for info in archive.list() if info.is_file}
        chosen = _chosen(sizes, members, name)
        require_space(scratch, sum(sizes[member] for member in chosen), f"unpacking {name}")
        archive.extract(unpacked, targets=chosen)
        for member in chosen:
            with pa.OSFile(str(Path(unpacked) / member)) as stream:
                yield RawFile(f"{name}::{member}", _plain(stream, member))


def _in_tar(path: Path, name: str, members: Sequence[str]) -> Iterator[RawFile]:
    """Read a tar front to back; nothing is extracted, so nothing can land in the wrong place."""
    found = []
    with (
        pa.OSFile(str(path)) as file,
        tarfile.open(fileobj=_plain(file, path.name), mode="r|") as archive,
    ):
        for info in archive:
            if not info.isreg():
                continue
            found.append(info.name)
            if _matches(info.name, members):
                _check_inside(tarfile.data_filter(info, str(path.parent)).name, name)
                stream = cast("IO[bytes]", archive.extractfile(info))  # None only for other kinds
                yield RawFile(f"{name}::{info.name}", _plain(stream, info.name))
    _chosen(found, members, name)
