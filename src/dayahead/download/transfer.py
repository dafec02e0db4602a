"""One file from a server to the disk: in segments, several at once, each fetched only once."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fsspec import AbstractFileSystem
from tqdm import tqdm

from dayahead.download.servers import NoRangesError, retried

SEGMENT = 16 << 20
"""Bytes asked for at once; what is killed loses at most THREADS of these."""
THREADS = 4
CHUNK = 8 << 20
"""Bytes read at once from a server that knows no ranges."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transfer:
    """A file on its way. Whoever starts the same transfer again goes on with what is missing."""

    fs: AbstractFileSystem
    path: str
    """Its name in `fs`."""
    size: int | None
    """Bytes it must have; None where the server does not say."""
    part: Path
    """Where it is written; marks of what is done lie beside it."""
    bar: tqdm

    def run(self) -> None:
        """Fetch what is missing.

        Raises:
            Exception: what the file system raises, after the last attempt; EOFError where more or
                fewer bytes come than asked for.
        """
        if self.size:
            try:
                self._fetch_segments(self.size)
            except NoRangesError as error:
                _log.info("%s: %s; it is read in one piece", self.part.stem, error)
            else:
                return
        self._marks.unlink(missing_ok=True)
        retried(self._stream, self.part.stem)

    @property
    def _marks(self) -> Path:
        """A byte per segment, 1 when it is on the disk."""
        return self.part.with_name(f".done-{SEGMENT}")

    def _fetch_segments(self, size: int) -> None:
        if not self.part.exists():
            self._marks.unlink(missing_ok=True)
        self.part.touch()
        self._marks.touch()
        done = self._marks.read_bytes()
        starts = [n * SEGMENT for n in range(-(-size // SEGMENT)) if done[n : n + 1] != b"\1"]
        lengths = [min(SEGMENT, size - start) for start in starts]
        self.bar.n = size - sum(lengths)
        # File systems that are not asynchronous inside may hold a single connection (FTP).
        with ThreadPoolExecutor(THREADS if self.fs.async_impl else 1) as pool:
            for length in pool.map(self._fetch_segment, starts, lengths):
                self.bar.update(length)

    def _fetch_segment(self, start: int, length: int) -> int:
        # One byte more than there should be at the end: a longer file must not pass for whole.
        end = start + length + (start + length == self.size)

        def content() -> bytes:
            data: bytes = self.fs.cat_file(self.path, start=start, end=end)
            if len(data) != length:
                raise EOFError(f"{len(data)} bytes came instead of {length} from byte {start} on")
            return data

        _write_at(self.part, start, retried(content, self.part.stem))
        _write_at(self._marks, start // SEGMENT, b"\1")
        return length

    def _stream(self) -> None:
        """Read front to back, each time from the beginning: there is no other way."""
        self.bar.n = 0
        with (
            self.part.open("wb") as out,
            self.fs.open(self.path, "rb", block_size=0, cache_type="none") as stream,
        ):
            while chunk := stream.read(CHUNK):
                out.write(chunk)
                self.bar.update(len(chunk))
            _flush(out)
            if self.size not in (None, out.tell()):
                raise EOFError(f"{out.tell()} bytes came instead of {self.size}")


def _write_at(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)
        _flush(file)


def _flush(file: BinaryIO) -> None:
    """Onto the disk, for good: a mark must not outlive what it marks."""
    file.flush()
    os.fsync(file.fileno())
