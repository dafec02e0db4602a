"""Copies files of a remote, and never reads more bytes than expected."""

import errno
import os
import stat
from pathlib import Path

from dvc_objects.fs.base import FileSystem
from fsspec.callbacks import Callback

from dayahead.sharing.manifest import EntryError

CHUNK = 1 << 20
"""Bytes read at once."""
UNREADABLE = (
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR),
    *(errno.ENXIO, errno.ENODEV, errno.ENAMETOOLONG),
)
"""Errors of a single file, while others in the folder may be readable."""


def copy_file(source: Path, target: Path, limit: int) -> None:
    """Copy a file of a shared folder to a new file.

    Raises:
        EntryError: it has more than `limit` bytes, is missing, or is not a readable file.
        OSError: an error of the target, or of a failing disk.
    """
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would wait forever.
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise EntryError(f"cannot be read there ({error.strerror})") from None
    with open(handle, "rb") as read, target.open("xb") as written:  # noqa: PTH123
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise EntryError("is no file there, but a folder, a pipe or a device")
        _check_size(about.st_size, limit)
        n_bytes = 0
        while chunk := read.read(CHUNK):
            n_bytes += len(chunk)
            _check_size(n_bytes, limit)  # the file may grow while it is read
            written.write(chunk)


def download_file(fs: FileSystem, source: str, target: Path, limit: int) -> None:
    """Copy a file of another file system to a new file.

    Raises:
        EntryError: it has more than `limit` bytes, or is missing.
        Exception: an error of the file system.
    """
    try:
        about = fs.info(source)
        if about.get("type") != "file":
            raise EntryError("is no file there")
        _check_size(about.get("size") or 0, limit)
        fs.get_file(source, str(target), callback=_Limit(limit))
    except FileNotFoundError:
        raise EntryError("is missing there") from None


class _Limit(Callback):  # type: ignore[misc]
    """Stops a transfer that exceeds the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def call(self, *_: object, **__: object) -> None:
        """Check the size that the other side reports, and the bytes received."""
        _check_size(max(self.size or 0, self.value), self.limit)


def _check_size(n_bytes: int, limit: int) -> None:
    if n_bytes > limit:
        raise EntryError(f"has more than {limit:,} bytes there")
