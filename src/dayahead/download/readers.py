"""Raw files (CSV, JSON lines, parquet) as batches of rows, values as written, bounded memory."""

import re
from collections.abc import Iterator

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download.archives import RawFile, wrap_errors
from dayahead.download.batches import Columns, RawBatch, kept_rows
from dayahead.download.csv_files import read_csv
from dayahead.download.json_lines import read_json_lines
from dayahead.download.parquet_files import read_parquet

_LIKE_CSV = {
    "csv": re.compile(b"(?!)"),
    "jsonl": re.compile(rb"[^{\[\0<]*[,;\t|][^{\[\0<]*[\r\n]"),
    "parquet": re.compile(rb"[^\0]{1,500}[\r\n]"),
}
"""Starts of files that are csv though another format is expected."""
_READERS = {"csv": read_csv, "jsonl": read_json_lines, "parquet": read_parquet}


def read_batches(
    raw: RawFile, source: SourceConfig, columns: Columns, *, is_strict: bool = True
) -> Iterator[RawBatch]:
    """Read some columns of a raw file, rows that `source.where` does not list left out.

    If `is_strict`, a row that cannot be parsed is an error; otherwise the batch counts it. An empty
    file has no rows.

    Raises:
        SourceError: the file is damaged or of another format, or a column is missing.
    """
    with wrap_errors(raw.name):
        _check_format(raw, source)
        for batch in _READERS[source.layout](raw, source, columns, is_strict=is_strict):
            yield kept_rows(batch, source.where)


def format_of(raw: RawFile, expected: str = "csv") -> str:
    """Return the format that the first bytes show; empty: they do not contradict the expected one.

    Raises:
        SourceError: it is a page of HTML or XML.
    """
    start = raw.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"<(!doctype|html|\?xml)", start, re.IGNORECASE):
        raise SourceError(
            f"{raw.name}: is a page of HTML or XML, such as a server sends in place of a file: it "
            f"begins with {start[:60]!r}. Fetch it by hand and look"
        )
    if raw.kind == "parquet":
        return "parquet"
    if expected != "jsonl" and re.match(rb'\{\s*("|\}|$)|\[\s*\{', start):
        return "jsonl"
    return "csv" if _LIKE_CSV[expected].match(start) else ""


def _check_format(raw: RawFile, source: SourceConfig) -> None:
    """Raise SourceError if the first bytes show another format than `source.format`."""
    found = format_of(raw, source.layout)
    if found and found != source.layout:
        raise SourceError(
            f"{raw.name}: expected {source.layout}, found what looks like {found}. Set "
            f"source.format to {found}, or correct source.urls"
        )
