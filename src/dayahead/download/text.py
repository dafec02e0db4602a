"""Text of any encoding as UTF-8; what is not text in it is marked, to be counted and read."""

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from charset_normalizer import from_bytes

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.archives import RawFile
from dayahead.download.batches import EXAMPLES, RawBatch

MARK = "\ufdd0"
"""Before each undecodable byte, which becomes backslash, x and two digits. Unicode reserves this
character for such use within programs."""
_CHUNK = 1 << 20
_MAX_LINE = 1 << 24
"""Number of bytes after which a line may be cut between two edits."""
_SAMPLE = 1 << 14
"""Number of undecodable bytes, with their neighbours, from which the encoding is guessed."""
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by byte order mark."""
_LATER_MARK = re.compile(rb"(?:\A|(?<=[\r\n]))" + codecs.BOM_UTF8)
_Edit = Callable[[bytes], bytes]


def _marked(error: UnicodeError, backslash: str = "\\") -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    found = error.object[error.start : error.end]
    return "".join(f"{MARK}{backslash}x{byte:02x}" for byte in found), error.end


codecs.register_error("dayahead.marked", _marked)
codecs.register_error("dayahead.escaped", lambda error: _marked(error, "\\\\"))


class Text:
    """A raw file as UTF-8 without byte order marks, also of parts put one after the other."""

    def __init__(self, raw: RawFile, source: SourceConfig, edit: _Edit | None = None) -> None:
        """Begin to read; `edit` changes whole lines before anybody sees them.

        Raises:
            SourceError: it is no text, or of another encoding.
        """
        self.name = raw.name
        self.encoding = source.encoding
        self.has_marks = False
        """Whether a byte so far was undecodable."""
        self._sample = b""
        is_escaped = source.format == "jsonl" or source.escape == "\\"
        self._errors = "dayahead.escaped" if is_escaped else "dayahead.marked"
        self._edit = edit or (lambda chunk: chunk)
        start = io.BufferedReader(raw.stream, _CHUNK)
        chunks = self._chunks(start)
        self.stream = io.BufferedReader(_Pieces(self._edited(chunks)), _CHUNK)  # type: ignore[type-var]

    def _chunks(self, stream: io.BufferedReader) -> Iterator[bytes]:
        head = stream.peek(4)
        if head.startswith(codecs.BOM_UTF8):
            self.encoding = "utf-8"
            stream.read(len(codecs.BOM_UTF8))
        else:
            marked = (name for mark, name in MARKS.items() if head.startswith(mark))
            self.encoding = next(marked, self.encoding)
        raw = iter(lambda: stream.read(_CHUNK), b"")
        if codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig"):
            _check_no_utf16(head, self.name)
            return raw
        return self._transcoded(raw)

    def _transcoded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.encoding)(self._errors)
        try:
            for chunk in chunks:
                yield self._encoded(decoder.decode(chunk))
            yield self._encoded(decoder.decode(b"", final=True))
        except UnicodeError as error:  # UTF-16 and UTF-32 without a byte order mark
            raise SourceError(
                f"{self.name}: not readable as {self.encoding}: {error}. Set source.encoding to "
                f"the encoding of the file"
            ) from None

    def _encoded(self, text: str) -> bytes:
        self.has_marks |= MARK in text
        return text.encode(errors="backslashreplace")

    def _edited(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        held = b""
        for chunk in chunks:
            held += chunk
            # A carriage return at the end may be half of a line end.
            cut = max(held.rfind(b"\n"), held.rfind(b"\r", 0, -1)) + 1
            if not cut and len(held) > _MAX_LINE:
                cut = len(held) - 16
                while held[cut] & 0xC0 == 0x80:  # noqa: PLR2004 - within a character
                    cut -= 1
            if cut:
                yield self._edit(self._checked(held[:cut]))
                held = held[cut:]
        if held:
            yield self._edit(self._checked(held))

    def _checked(self, chunk: bytes) -> bytes:
        """Remove byte order marks, and mark what is not UTF-8."""
        if chunk.isascii():
            return chunk
        if codecs.BOM_UTF8 in chunk:
            chunk = _LATER_MARK.sub(b"", chunk)
        try:
            chunk.decode()
        except UnicodeDecodeError:
            self.has_marks = True
            if len(self._sample) < _SAMPLE:
                self._sample += b"\n".join(re.findall(rb"[^\r\n]*[\x80-\xff][^\r\n]*", chunk))
            return chunk.decode(errors=self._errors).encode()
        return chunk

    def without_marks(self, batch: RawBatch) -> RawBatch:
        """Take the marks out of the values; note the rows that have some."""
        if not self.has_marks:
            return batch
        table, rows = batch.table, np.zeros(batch.table.num_rows, bool)
        examples: dict[int, str] = {}
        for index, column in enumerate(table.schema.names):
            values = table[column].combine_chunks()
            if not pa.types.is_string(values.type):
                continue
            found = np.asarray(pc.fill_null(pc.match_substring(values, MARK), fill_value=False))
            if found.any():
                values = pc.replace_substring(values, MARK, "")
                table = table.set_column(index, column, values)
                rows |= found
                for row in np.flatnonzero(found)[:EXAMPLES].tolist():
                    examples.setdefault(row, f"column {column}: {values[row].as_py()[:100]}")
        errors = [
            f"{batch.location(row)}: {examples[row]}: not {self.encoding}{self.guess()}"
            for row in sorted(examples)[:EXAMPLES]
        ]
        undecodable = batch.indices()[rows]
        return replace(
            batch, table=table, undecodable=undecodable, undecodable_errors=tuple(errors)
        )

    def guess(self) -> str:
        """Return words about the encoding that undecodable bytes may have; empty: none found."""
        found = guessed_encoding(self._sample[:_SAMPLE]) if self._sample else ""
        return f", it looks like {found}" if found else ""


def printable(text: str) -> str:
    """Return the start of a text, without marks and on one line, for messages."""
    text = text[:300].replace(MARK, "")
    return re.sub(r"[\0-\x08\n-\x1f]", lambda found: repr(found[0])[1:-1], text)[:300]


class _Pieces(io.RawIOBase):
    """A stream of bytes from an iterator."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        n = min(len(buffer), len(self._left))
        buffer[:n] = self._left[:n]
        self._left = self._left[n:]
        return n


def wide_encoding(head: bytes) -> str:
    """Return the encoding of text with zeros as UTF-16 and UTF-32 have them; empty: none."""
    zeros = np.frombuffer(head[:4096], np.uint8) == 0
    if not zeros.any() or zeros.mean() < 0.1:  # noqa: PLR2004
        return ""
    is_wide = zeros.mean() > 0.6  # noqa: PLR2004
    looks = {
        "utf-32-le": is_wide and not zeros[::4].any(),
        "utf-32-be": is_wide and not zeros[3::4].any(),
        "utf-16-le": zeros[::2].mean() < zeros[1::2].mean() / 9,
        "utf-16-be": zeros[1::2].mean() < zeros[::2].mean() / 9,
    }
    return next((encoding for encoding, is_it in looks.items() if is_it), "")


def _check_no_utf16(head: bytes, name: str) -> None:
    """Raise SourceError if text has zeros as UTF-16 and UTF-32 have them."""
    if found := wide_encoding(head):
        raise SourceError(
            f"{name}, line 1: holds zero bytes: it looks like {found} without a byte order mark; "
            f"expected UTF-8. Set source.encoding to {found}"
        )


def guessed_encoding(sample: bytes) -> str:
    """Return what the encoding of text that is not UTF-8 looks like; empty: unknown.

    Among single bytes of which a few are not ASCII, cp1252 is by far the most frequent: other
    Western and Central European ones look like it in short texts.
    """
    best = from_bytes(sample).best()
    found = best.encoding if best is not None else ""
    letters = re.findall(rb"[A-Za-z\x80-\xff]", sample)
    n_high = sum(letter > b"\x7f" for letter in letters)
    try:
        is_western = sum(char.isalpha() for char in sample.decode("cp1252") if char > "\x7f")
    except UnicodeDecodeError:
        is_western = 0
    if 0 < n_high < 0.4 * len(letters) and is_western > 0.7 * n_high:
        return "cp1252"
    return found
