"""What a file is, by its first bytes, and compressed files as streams of plain bytes."""

import bz2
import codecs
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from dayahead.core.errors import SourceError

HEAD = 1 << 12
"""Number of bytes at the start of a file that tell what it is."""
_MAX_LAYERS = 3
"""Maximum number of times that a file may be compressed."""


def _gunzipped(stream: Any) -> Any:  # noqa: ANN401
    """Unpack with Arrow, which is faster, unless zeros may pad the file: it fails at these."""
    if isinstance(stream, pa.OSFile):
        stream.seek(stream.size() - 1)
        # A gzip ends with its unpacked size: of one below 16 MiB the last byte is zero, too.
        is_padded = stream.read(1) == b"\0"
        stream.seek(0)
        if not is_padded:
            return pa.CompressedInputStream(stream, "gzip")
    return gzip.GzipFile(fileobj=stream, mode="rb")


_READERS: dict[str, Callable[[Any], Any]] = {
    "gzip": _gunzipped,
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": lambda stream: pa.CompressedInputStream(stream, "zstd"),
    "lz4": lambda stream: pa.CompressedInputStream(stream, "lz4"),
}
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"PAR1": "parquet",
    b"Rar!\x1a\x07": "a rar archive",
    b"\x1f\x9d": "a file of compress (.Z)",
    b"\xff\x06\0\0sNaPpY": "a snappy file",
    b"\x89LZO\0": "an lzop file",
    b"LZIP": "an lzip file",
    b"\x5d\0\0": "xz",
    b"PARE": "an encrypted parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"ARROW1": "an Arrow file",
    b"FEA1": "a Feather file",
    b"SQLite format 3\0": "an SQLite database",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an Excel workbook (xls)",
    b"%PDF-": "a PDF file",
}
_WITHOUT_MAGIC = {".br": "a brotli file", ".snappy": "a snappy file", ".lzo": "an lzo file"}
ARCHIVES = ("zip", "7z", "tar")


def kind_of(head: bytes, name: str) -> str:
    """Return what a file is by its first bytes: gzip, zip, tar ...; empty: none of these, as text.

    Raises:
        SourceError: it is of a kind that cannot be read.
    """
    skippable = head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F  # noqa: PLR2004
    found = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    if found and _is_text(head):  # a column of csv may be called ORC
        found = ""
    kind = "zstd" if skippable else "tar" if not found and _is_tar(head) else found
    suffix = PurePosixPath(name.lower()).suffix
    if not kind and suffix in _WITHOUT_MAGIC and not _is_text(head):
        kind = _WITHOUT_MAGIC[suffix]
    if " " in kind:
        raise SourceError(
            f"{name}: is {kind}, which cannot be read; expected csv, JSON lines or parquet, plain "
            f"or packed (gz, zst, bz2, xz, lz4, zip, 7z, tar). Convert it, and list that file in "
            f"source.urls"
        )
    return kind


def kind_of_file(path: Path) -> str:
    """Return what a local file is, like `kind_of`."""
    with path.open("rb") as file:
        return kind_of(file.read(HEAD), path.name)


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # its last character may be cut
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def decompressed(stream: IO[bytes], name: str) -> tuple[IO[bytes], str, bytes]:
    """Unpack a stream as often as it is compressed.

    Returns:
        The plain bytes (`stream` itself if that is a pyarrow.OSFile and not compressed), what they
        are, as `kind_of` says, and the first of them.

    Raises:
        SourceError: it is of a kind that cannot be read.
    """
    for _ in range(_MAX_LAYERS + 1):
        head, stream = _peeked(stream)
        kind = kind_of(head, name)
        if kind not in _READERS:
            return stream, kind, head
        stream = _READERS[kind](stream)
    raise SourceError(
        f"{name}: is compressed more than {_MAX_LAYERS} times. Unpack it by hand and list that "
        f"file in source.urls"
    )


def _peeked(stream: IO[bytes]) -> tuple[bytes, IO[bytes]]:
    """Return the first bytes, and a stream that still has them."""
    if isinstance(stream, pa.OSFile):
        head = stream.read(HEAD)
        stream.seek(0)
        return head, stream
    buffered = io.BufferedReader(stream, 1 << 20)  # type: ignore[type-var]
    return buffered.peek(HEAD)[:HEAD], buffered
