"""CSV as batches of rows: values as written, rows of another length left out and counted."""

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download import batches
from dayahead.download.archives import RawFile
from dayahead.download.batches import (
    EXAMPLES,
    LENIENT,
    QUOTE_ADVICE,
    UNREADABLE,
    Columns,
    Indices,
    RawBatch,
)
from dayahead.download.csv_header import Dialect, Header, read_header
from dayahead.download.text import Text, printable

BLANK_LINE = "blank line"
"""Reason of rows of nothing but blanks."""
REPEATED_HEADER = "repeated header"
"""Reason of rows that equal the header, as between files put one after the other."""
_SETTINGS = "source.delimiter, source.quote and source.escape"


def read_csv(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool
) -> Iterator[RawBatch]:
    """Read some columns of a csv file.

    Raises:
        SourceError: a column is missing or, if `is_strict`, a row has too few or too many values.
    """
    dialect = Dialect.of(source)
    text = Text(raw, source, partial(_edited, raw.name, dialect))
    if text.stream.peek(1):  # the parts of some writers are empty
        header = read_header(text, source, dialect, columns)
        if not header.names:
            return  # nothing but blank lines
        file = _CsvFile(text, header, dialect, columns)
        yield from file.batches(source.nulls, is_strict=is_strict)


def _edited(name: str, dialect: Dialect, lines: bytes) -> bytes:
    """Replace a delimiter of several bytes, and keep the escaped N that stands for a null."""
    delimiter = dialect.delimiter.encode()
    if dialect.is_replaced:
        if delimiter in lines:
            raise SourceError(
                f"{name}: holds the character U+001F, which stands for the delimiter "
                f"{dialect.written!r} while it is read. Remove that character from the file"
            )
        lines = lines.replace(dialect.written.encode(), delimiter)
    if dialect.escape is not None and (null := dialect.escape.encode() + b"N") in lines:
        before, after = b"[" + re.escape(delimiter) + b"\r\n]", re.escape(null)
        pattern = rb"(?:\A|(?<=" + before + b"))" + after + rb"(?=" + before + rb"|\Z)"
        lines = re.sub(pattern, lambda found: null[:1] + found[0], lines)
    return lines


class _CsvFile:
    """The rows of a csv file after its header."""

    def __init__(self, text: Text, header: Header, dialect: Dialect, columns: Columns) -> None:
        self._text = text
        self._header = header
        self._dialect = dialect
        self._columns = list(columns)
        self._positions = [str(header.names.index(column)) for column in columns]
        self._first = 0
        """Row of the next batch, from 0."""
        self._odd = {UNREADABLE: array("q"), BLANK_LINE: array("q")}
        """Rows of another length that no batch counts yet, by reason."""
        self._spanning: set[int] = set()
        """Unreadable rows that span lines: after a stray quote, one may hold the rest of a file."""
        self._errors: list[str] = []

    def batches(self, nulls: tuple[str, ...], *, is_strict: bool) -> Iterator[RawBatch]:
        """Read the rows."""
        if not self._text.stream.peek(1):
            return  # a header without rows, as for an hour without events
        try:
            for batch in self._open(nulls, is_strict=is_strict):
                yield self._batch(pa.Table.from_batches([batch]))
        except pa.ArrowInvalid as error:
            row, reason = self._first + sum(map(len, self._odd.values())), str(error)
            if match := re.search(r"Row #(\d+): (.*)", reason, re.DOTALL):
                row, reason = int(match[1]) - 1, match[2]
            elif "straddling" in reason:
                quote = self._dialect.quote or self._dialect.escape
                reason = f"a row of more than {batches.BLOCK:,} bytes, as after a stray {quote}"
            raise SourceError(self._message(row, reason)) from None
        if any(self._odd.values()):
            schema = pa.schema([(name, pa.string()) for name in self._positions])
            yield self._batch(schema.empty_table())

    def _open(self, nulls: tuple[str, ...], *, is_strict: bool) -> pa_csv.CSVStreamingReader:
        """Read columns called 0, 1, 2 ...: those to read, or all where values can span lines."""
        names = list(map(str, range(len(self._header.names))))
        quote, escape = self._dialect.quote, self._dialect.escape
        conversion = pa_csv.ConvertOptions(
            include_columns=names if quote or escape else self._positions,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(nulls),
            strings_can_be_null=True,
            check_utf8=False,  # it is, see Text
        )

        def handle(row: pa_csv.InvalidRow) -> str:
            is_blank = not row.text.strip()
            if is_strict and not is_blank:
                return "error"
            self._odd[BLANK_LINE if is_blank else UNREADABLE].append(row.number - 1)
            if not is_blank and re.search(r"[\r\n]", row.text):
                self._spanning.add(row.number - 1)
            if not is_blank and len(self._errors) < EXAMPLES:
                found = f"Expected {row.expected_columns} columns, got {row.actual_columns}: "
                self._errors.append(self._message(row.number - 1, found + row.text))
            return "skip"

        # One thread: only then do errors name the row, and more do not speed up decompression.
        reading = pa_csv.ReadOptions(
            column_names=names, block_size=batches.BLOCK, use_threads=False
        )
        parsing = pa_csv.ParseOptions(
            delimiter=self._dialect.delimiter,
            quote_char=quote or False,
            escape_char=escape or False,
            newlines_in_values=True,
            invalid_row_handler=handle,
        )
        return pa_csv.open_csv(self._text.stream, reading, parsing, conversion)

    def _message(self, row: int, reason: str) -> str:
        line = f", line {row + 1 + self._header.n_lines:,}"
        quote = self._dialect.quote
        advice = QUOTE_ADVICE if quote and quote in reason else f"See {_SETTINGS}"
        reason = printable(self._dialect.shown(reason))
        return f"{self._text.name}{line}: not a row of this table: {reason}. {advice}; {LENIENT}"

    def _batch(self, table: pa.Table) -> RawBatch:
        left_out = self._left_out(table.num_rows)
        batch = RawBatch(
            table.select(self._positions).rename_columns(self._columns),
            self._text.name,
            "line",
            self._first + 1 + self._header.n_lines,
            left_out=left_out,
            errors=tuple(self._errors) if UNREADABLE in left_out else (),
        )
        odd = [n for n in left_out.get(UNREADABLE, ()) if self._first + n in self._spanning]
        multiline = np.union1d(batch.indices()[self._spans_lines(table)], np.array(odd, np.int64))
        self._first += batch.n_rows
        if UNREADABLE in left_out:
            self._errors = []
        batch = replace(batch, multiline=multiline, table=self._as_written(batch.table))
        batch = self._text.without_marks(batch)
        return batch.without(REPEATED_HEADER, self._is_header(batch.table))

    def _as_written(self, table: pa.Table) -> pa.Table:
        """Put delimiters back into values, and remove what pads columns whose names are padded."""
        for index, name in enumerate(self._columns):
            values = table[name]
            if self._dialect.is_replaced:
                values = pc.replace_substring(
                    values, self._dialect.delimiter, self._dialect.written
                )
            if name in self._header.padded:
                values = self._without_padding(values)
            table = table.set_column(index, name, values)
        return table

    def _left_out(self, n_rows: int) -> Mapping[str, Indices]:
        """Return the indices of odd rows before, between and right after the next `n_rows`."""
        found: dict[str, list[int]] = {reason: [] for reason in self._odd}
        pending = sorted((row, reason) for reason, rows in self._odd.items() for row in rows)
        for n_found, (row, reason) in enumerate(pending):
            if row - self._first > n_rows + n_found:
                break
            found[reason].append(row - self._first)
        for reason, indices in found.items():
            self._odd[reason] = self._odd[reason][len(indices) :]
        return {reason: np.array(rows, np.int64) for reason, rows in found.items() if rows}

    def _spans_lines(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Mark the rows with a value that spans lines."""
        marks = np.zeros(table.num_rows, bool)
        can_span = self._dialect.quote or self._dialect.escape
        for values in table.columns if can_span else ():
            found = pc.match_substring_regex(values, r"[\r\n]")
            marks |= np.asarray(pc.fill_null(found, fill_value=False))
        return marks

    def _is_header(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Mark the rows that equal the header."""
        marks = np.ones(table.num_rows, bool)
        for name in self._columns if table.num_rows else ():
            marks &= np.asarray(pc.fill_null(pc.equal(table[name], name), fill_value=False))
            if not marks.any():
                break
        return marks

    def _without_padding(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Remove blanks around values, and quotes within these blanks."""
        values = pc.ascii_trim_whitespace(values)
        if (quote := self._dialect.quote) is None:
            return values
        is_quoted = pc.match_substring_regex(values, f"^{re.escape(quote)}.*{re.escape(quote)}$")
        return pc.if_else(is_quoted, pc.utf8_slice_codeunits(values, 1, -1), values)
