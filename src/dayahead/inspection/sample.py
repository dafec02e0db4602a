"""The first rows of a file: its bytes unpacked, its text decoded, its size estimated."""

import codecs
import re
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.errors import ConfigError, SourceError
from dayahead.download.archives import RawFile, raw_files, wrap_errors
from dayahead.download.compression import kind_of_file
from dayahead.download.members import EVERY
from dayahead.download.parquet_files import seekable
from dayahead.download.readers import format_of
from dayahead.download.sources import list_files
from dayahead.download.text import MARKS, guessed_encoding, wide_encoding
from dayahead.inspection.finding import Finding

BYTES = 8 << 20
"""Maximum number of bytes of text that are read of a file."""
ROWS = 200_000
"""Maximum number of its rows that are looked at."""
RECORDS = 2000
"""Number of records whose paths are looked at."""
_PIECE = 1 << 20
_MAX_ARCHIVE = 256 << 20
"""Bytes of a tar or 7z up to which it is read through in seconds."""
_FEW = 0.001
"""Share of lines with undecodable bytes up to which a file is UTF-8 all the same."""


@dataclass(frozen=True)
class Sample:
    """The start of the first file in `path`."""

    path: Path
    name: str
    """Name for messages: with ::member inside an archive."""
    packing: str
    """Compression or archive; empty: none."""
    format: str
    """csv, jsonl or parquet."""
    text: str
    """Whole lines, at most BYTES before decoding; empty for parquet."""
    records: Sequence[dict[str, Any]]
    """First records of parquet."""
    encoding: Finding
    times_longer: float
    """Estimate of how many times as long as the sample the file is."""


def local_files(given: Sequence[str]) -> list[Path]:
    """Return the files that paths and globs name.

    Raises:
        SourceError: nothing matches.
        ConfigError: one is not on this machine.
    """
    if remote := [each for each in given if "://" in each and not each.startswith("file://")]:
        raise ConfigError(f"{remote[0]}: inspect reads local files; fetch a part of it by hand")
    files = list_files(list(dict.fromkeys(given)), "Check the path")
    return [Path(file.path) for file in files]


def take_sample(path: Path) -> Sample | None:
    """Read the start of a file; None: it is empty.

    Raises:
        SourceError: it is damaged, no text and no parquet, or a page of HTML.
    """
    with TemporaryDirectory() as scratch:
        packing = kind_of_file(path)
        _check_size(path, packing)
        with closing(raw_files(path, path.name, EVERY, Path(scratch))) as files:  # type: ignore[type-var]
            raw = next(files)
            if raw.kind == "parquet":
                return _of_parquet(path, raw, packing)
            with wrap_errors(raw.name):
                content = BufferedReader(raw.stream, _PIECE).read(BYTES)
    if not content.strip():
        return None
    is_cut = len(content) >= BYTES
    encoding = _encoding(content, raw.name)
    text = _decoded(content, encoding.value, is_cut=is_cut)
    longer = max(1.0, _unpacked_size(path, packing, content) / len(content))
    format_ = format_of(RawFile(raw.name, None, "", text[:4096].encode())) or "csv"
    return Sample(path, raw.name, packing, format_, text, (), encoding, longer if is_cut else 1)


def _check_size(path: Path, packing: str) -> None:
    """Raise SourceError for a large archive that can only be read as a whole."""
    is_whole = packing in ("7z", "tar") or re.search(r"\.(tar|tgz)\b", path.name)
    if is_whole and path.stat().st_size > _MAX_ARCHIVE:
        raise SourceError(
            f"{path.name}: is an archive of {path.stat().st_size / 1e6:,.0f} MB that can only be "
            f"read as a whole; unpack one of its files by hand and inspect that"
        )


def _of_parquet(path: Path, raw: RawFile, packing: str) -> Sample | None:
    with wrap_errors(raw.name), seekable(raw.stream) as stream:
        file = pq.ParquetFile(stream)
        first = next(file.iter_batches(batch_size=RECORDS), None)
        records = first.to_pylist() if first is not None else []
        records = [_without_null_records(each, file.schema_arrow) for each in records]
    none = Finding("source.encoding", "utf-8", "certain", "parquet")
    longer = max(1.0, file.metadata.num_rows / ROWS)
    return (
        Sample(path, raw.name, packing, "parquet", "", records, none, longer) if records else None
    )


def _without_null_records(record: dict[str, Any], fields: Iterable[pa.Field]) -> dict[str, Any]:
    """Leave out the records and lists that are null: their values do not say what they are."""
    found = {}
    for field in fields:
        value = record[field.name]
        if value is not None and pa.types.is_struct(field.type):
            value = _without_null_records(value, field.type)
        if value is not None or not pa.types.is_nested(field.type):
            found[field.name] = value
    return found


def _unpacked_size(path: Path, packing: str, content: bytes) -> float:
    ratio = len(content[:_PIECE]) / len(zlib.compress(content[:_PIECE])) if packing else 1
    return path.stat().st_size * ratio


def _encoding(content: bytes, name: str) -> Finding:
    """Return the value of source.encoding.

    Raises:
        SourceError: it is no text.
    """
    if any(content.startswith(mark) for mark in (codecs.BOM_UTF8, *MARKS)):
        return Finding("source.encoding", "utf-8", "certain", "a byte order mark, which is read")
    if wide := wide_encoding(content[:4096]):
        return Finding("source.encoding", wide, "likely", "where its zero bytes are")
    if b"\0" in content[:4096] or len(re.findall(rb"[\1-\b\x0e-\x1a]", content[:4096])) > 40:  # noqa: PLR2004
        raise SourceError(f"{name}: is no text, and of no kind that can be read; expected a log")
    lines = content.split(b"\n")[: -1 if len(content) >= BYTES else None]
    odd = [line for line in lines if not line.isascii() and not _is_utf8(line)]
    if not odd:
        return Finding("source.encoding", "utf-8", "certain", "every line of the sample is UTF-8")
    if len(odd) < _FEW * len(lines):
        reason = f"all but {len(odd)} of {len(lines):,} lines of the sample are UTF-8"
        return Finding("source.encoding", "utf-8", "likely", reason)
    found = guessed_encoding(b"\n".join(odd)[: 1 << 14]) or "cp1252"
    reason = f"{len(odd):,} of {len(lines):,} lines are not UTF-8, and their letters look like it"
    return Finding("source.encoding", found, "likely", reason)


def _is_utf8(line: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        line.decode()
        return True
    return False


def _decoded(content: bytes, encoding: str, *, is_cut: bool) -> str:
    marked = next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    text = content.decode(marked or encoding, errors="replace").removeprefix("\ufeff")
    cut = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[:cut] if is_cut and cut else text
