"""The first lines of a csv file: column names, and how its rows are written."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.batches import Columns, check_columns
from dayahead.download.text import MARK, Text

_MAX_HEADER = 1 << 20
"""Maximum number of bytes of a csv header."""
_N_ROWS = 20
"""Number of lines after the first that are looked at."""
_STAND_IN = "\x1f"
"""What delimiters of several bytes are replaced with."""
DELIMITERS = ("::", "||", ",", ";", "\t", "|", "^", "~", "\x01", " ")
"""What logs separate values with, the likely ones first."""


@dataclass(frozen=True)
class Dialect:
    """How the rows are written, once delimiters of several bytes are replaced by one."""

    delimiter: str
    quote: str | None
    escape: str | None
    written: str
    """The delimiter in the file."""

    @classmethod
    def of(cls, source: SourceConfig) -> "Dialect":
        """Return the dialect of a data set's files."""
        is_long = len(source.delimiter.encode()) > 1
        delimiter = _STAND_IN if is_long else source.delimiter
        return cls(delimiter, source.quote, source.escape, source.delimiter)

    @property
    def is_replaced(self) -> bool:
        """Whether the delimiter has several bytes."""
        return self.delimiter != self.written

    def rows(self, lines: Iterator[str], delimiter: str | None = None) -> Iterator[list[str]]:
        """Split lines as Python's csv module does, by another delimiter if one is given."""
        options: dict[str, Any] = {"quotechar": self.quote} if self.quote else {}
        return csv.reader(
            lines,
            delimiter=delimiter or self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape,
            **options,
        )

    def shown(self, text: str) -> str:
        """Return text with the delimiter of the file."""
        return text.replace(self.delimiter, self.written) if self.is_replaced else text

    def bare(self, value: str) -> str:
        """Return a value without blanks and quotes around it."""
        value = value.strip()
        is_quoted = self.quote and len(value) > 1 and value[0] == value[-1] == self.quote
        return value[1:-1] if is_quoted else value


@dataclass(frozen=True)
class Header:
    """The columns of a csv file."""

    names: list[str]
    """None in a file of blank lines."""
    n_lines: int
    """Number of lines before the first row."""
    padded: frozenset[str] = field(default_factory=frozenset)
    """Columns whose names have blanks around them in the file, as their values do."""


def read_header(text: Text, source: SourceConfig, dialect: Dialect, columns: Columns) -> Header:
    """Read the lines before the first row.

    Raises:
        SourceError: a column is missing; says where it is, if a delimiter, a line or an encoding
            explains that.
    """
    lines = _Lines(text)
    names = list(source.header or ())
    if re.match(rb'"?sep=', text.stream.peek(8), re.IGNORECASE):
        _check_separator(next(lines.decoded()), source, text.name)
    if not names:
        names = _names(lines, dialect, text.name)
    if not names and not text.stream.peek(1):
        return Header([], lines.n)
    padded = set()
    for column in columns:
        alike = [index for index, name in enumerate(names) if dialect.bare(name) == column]
        if column not in names and len(alike) == 1:
            names[alike[0]] = column
            padded.add(column)
    if not set(columns) <= set(names) and not source.header:
        _explain(text, lines, dialect, columns, names)
    check_columns(columns, list(map(dialect.shown, names)), text.name)
    return Header(_fitted(names, text, dialect), lines.n, frozenset(padded))


class _Lines:
    """The first lines of a text, read byte by byte so that nothing after them is consumed."""

    def __init__(self, text: Text) -> None:
        self.n = 0
        self.first = ""
        """The first line that is not blank."""
        self._text = text

    def decoded(self) -> Iterator[str]:
        """Read lines, each with a line end."""
        stream = self._text.stream
        n_bytes = 0
        while stream.peek(1) and n_bytes < _MAX_HEADER:
            line = bytearray()
            while len(line) < _MAX_HEADER and (byte := stream.read(1)) not in (b"", b"\r", b"\n"):
                line += byte
            if byte == b"\r" and stream.peek(1).startswith(b"\n"):
                stream.read(1)
            self.n += 1
            n_bytes += len(line)
            found = line.decode(errors="replace")  # a long line is cut, maybe within a character
            self.first = self.first or found.strip()
            yield found + "\n"


def _names(lines: _Lines, dialect: Dialect, name: str) -> list[str]:
    try:
        rows = dialect.rows(lines.decoded())
        return next((row for row in rows if any(cell.strip() for cell in row)), [])
    except csv.Error as error:
        raise SourceError(f"{name}, line 1: expected column names in UTF-8: {error}") from None


def _check_separator(line: str, source: SourceConfig, name: str) -> None:
    """Check the first line that Excel reads and writes, such as sep=; in Germany."""
    found = line.strip("\r\n").strip('"')[len("sep=") :]
    if found not in (source.delimiter, ""):
        raise SourceError(
            f"{name}, line 1: says that {found!r} is the delimiter, expected {source.delimiter!r}. "
            f"Set source.delimiter to {found!r}"
        )


def _explain(
    text: Text, lines: _Lines, dialect: Dialect, columns: Columns, names: list[str]
) -> None:
    """Raise SourceError if another delimiter, line or encoding has the missing columns."""
    where = f"{text.name}, line {lines.n:,}"
    for delimiter in DELIMITERS:
        cells = list(map(dialect.bare, dialect.shown(lines.first).split(delimiter)))
        if delimiter != dialect.written and set(columns) <= set(cells):
            raise SourceError(
                f"{where}: expected columns separated by {dialect.written!r}, found {delimiter!r}. "
                f"Set source.delimiter to {delimiter!r}"
            )
    for number, row in enumerate(_next_rows(text, dialect), start=lines.n + 1):
        if set(columns) <= set(map(dialect.bare, row)):
            raise SourceError(
                f"{text.name}, line {number:,}: the column names are here, expected in the first "
                f"line. Remove the lines before, or list all names in source.header and allow "
                f"quality.unreadable for those lines"
            )
    if any(MARK in name for name in names):
        shown = ", ".join(names).replace(MARK, "")
        raise SourceError(
            f"{where}: expected column names in {text.encoding.upper()}, found {shown[:300]}"
            f"{text.guess()}. Set source.encoding to the encoding of the file"
        )


def _next_rows(text: Text, dialect: Dialect) -> list[list[str]]:
    """Return the rows of the next lines, without reading on."""
    lines = re.split(rb"\r\n|\r|\n", text.stream.peek(1))
    whole = lines[:-1] or lines  # the last one may be cut
    found = (line.decode(errors="replace") + "\n" for line in islice(whole, _N_ROWS))
    try:
        return list(dialect.rows(found))
    except csv.Error:
        return []


def _fitted(names: list[str], text: Text, dialect: Dialect) -> list[str]:
    """Add or remove a last column without a name, where all rows end with a delimiter, or none."""
    rows = [row for row in _next_rows(text, dialect) if any(row)]
    if rows and all(len(row) == len(names) + 1 and not row[-1] for row in rows):
        return [*names, ""]
    if rows and names[-1] == "" and all(len(row) == len(names) - 1 for row in rows):
        return names[:-1]
    return names
