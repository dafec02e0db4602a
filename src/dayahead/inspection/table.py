"""The rows of a sample as columns: read by the readers of `download`, values counted."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.errors import SourceError
from dayahead.core.ragged import Ints
from dayahead.dataset.source import SourceConfig
from dayahead.download.archives import RawFile, raw_files
from dayahead.download.batches import UNREADABLE, RawBatch, as_text
from dayahead.download.members import EVERY
from dayahead.download.readers import read_batches
from dayahead.inspection.dialect import Layout, find_layout
from dayahead.inspection.finding import Finding
from dayahead.inspection.records import find_paths, lines_of, parsed
from dayahead.inspection.sample import RECORDS, ROWS, Sample

Kind = Literal["int", "number", "time", "text"]
NULLS = ("NULL", "null", "\\N", "NA", "N/A", "nan", "NaN", "None", "undefined", "(not set)")
"""Texts that mean that there is no value."""
_INT = r"^[+-]?\d+(\.0+)?$"
_NUMBER = r"^[+-]?(\d+|\d{1,3}([.,' ]\d{3})+)([.,]\d*)?([eE][+-]?\d+)?$|^[+-]?[.,]\d+$"


@dataclass(frozen=True)
class Column:
    """A column of the sample."""

    name: str
    values: pa.Array
    """As the reader gives them."""
    text: pa.Array
    """The same as text; null where one of NULLS, or nothing, stands."""

    @cached_property
    def codes(self) -> Ints:
        """Return the index in `distinct` of each value, -1 for null."""
        return np.asarray(pc.fill_null(self._encoded.indices, -1)).astype(np.int64)

    @cached_property
    def distinct(self) -> pa.Array:
        """Return the different values, as text."""
        return self._encoded.dictionary

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        return self.text.dictionary_encode()

    @property
    def n(self) -> int:
        """Rows with a value."""
        return int(len(self.text) - self.text.null_count)

    @property
    def nulls(self) -> float:
        """Share of rows without a value."""
        return float(self.text.null_count / max(1, len(self.text)))

    @cached_property
    def kind(self) -> Kind:
        """Return what all values are."""
        if pa.types.is_temporal(self.values.type):
            return "time"
        for kind, pattern in (("int", _INT), ("number", _NUMBER)):
            if self.n and pc.all(pc.match_substring_regex(self.distinct, pattern)).as_py():
                return kind  # type: ignore[return-value]
        return "text"

    def counts(self) -> dict[str, int]:
        """Return the most frequent values."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.distinct))
        order = np.argsort(-found, kind="stable")[:50]
        return {self.distinct[index].as_py(): int(found[index]) for index in order.tolist()}


@dataclass(frozen=True)
class Table:
    """The rows of the samples of one log."""

    source: SourceConfig
    columns: dict[str, Column]
    n_rows: int
    n_first: int
    """Rows of the first file's sample."""
    times_longer: float
    """Estimate of how many times as many rows the first file has."""
    findings: list[Finding]
    unreadable: int = 0
    """Rows of the sample that cannot be read: too few or too many values, no JSON."""
    multiline: int = 0
    """Rows with a value that spans lines."""


def layout_of(sample: Sample, url: str) -> Layout:
    """Return how a file is written, the names of its columns, and why.

    Raises:
        SourceError: it is no table.
    """
    source = SourceConfig(urls=(url,), format=sample.format)  # type: ignore[arg-type]
    if sample.format == "csv":
        return find_layout(sample.text, source, sample.name)
    records = sample.records or list(islice(parsed(lines_of(sample.text, sample.name)), RECORDS))
    found = find_paths(records, source)
    if not found.names:
        raise SourceError(f"{sample.name}: begins as JSON does, but holds no object with values")
    return found


def read_table(samples: list[Sample], url: str) -> Table:
    """Read the rows of the first and the last file.

    Raises:
        SourceError: a file is no table.
    """
    layout = layout_of(samples[0], url)
    source, findings = layout.source, layout.findings
    names = [name for name in layout.names if name and layout.names.count(name) == 1]
    parts = [_rows(samples[0], source, names)]
    for sample in samples[1:]:
        others = layout_of(sample, url).names
        findings = [*findings, *_differing(sample, names, others)]
        parts.append(_rows(sample, source, [name for name in names if name in others]))
    whole = _joined([part.table for part in parts])
    columns, nulls = {}, [""]
    for name in names:
        values = whole[name].combine_chunks()
        text = as_text(values)
        marks = pc.is_in(text, value_set=pa.array([*NULLS, ""], pa.string()))
        found = pc.unique(text.filter(marks)).to_pylist()
        nulls += [mark for mark in found if mark not in nulls]
        columns[name] = Column(name, values, pc.if_else(marks, None, text))
    source = replace(source, nulls=tuple(nulls), encoding=samples[0].encoding.value)
    odd = sum(part.unreadable for part in parts), sum(part.multiline for part in parts)
    n_first = parts[0].table.num_rows
    is_text = samples[0].format != "parquet"
    longer = samples[0].times_longer * (parts[0].n_read / n_first if is_text else 1)
    return Table(source, columns, whole.num_rows, n_first, longer, findings, *odd)


def _differing(sample: Sample, names: list[str], others: list[str]) -> Iterator[Finding]:
    for problem, found in (
        ("lacks", [name for name in names if name not in others]),
        ("has besides", [name for name in others if name not in names]),
    ):
        if found:
            reason = f"{sample.name} {problem}: {', '.join(found)}"
            yield Finding("columns", "differ by file", "certain", reason)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Put tables one below the other; a column of two types becomes text."""
    if len(tables) == 1:
        return tables[0]
    for name in tables[0].schema.names:
        kinds = {table.schema.field(name).type for table in tables if name in table.schema.names}
        for index, table in enumerate(tables if len(kinds) > 1 else ()):
            place = table.schema.get_field_index(name)
            if place >= 0:
                text = as_text(table[name].combine_chunks())
                tables[index] = table.set_column(place, name, text)
    return pa.concat_tables(tables, promote_options="permissive")


@dataclass(frozen=True)
class _Part:
    table: pa.Table
    n_read: int
    """Rows before they are cut to ROWS."""
    unreadable: int
    multiline: int


def _rows(sample: Sample, source: SourceConfig, names: list[str]) -> _Part:
    wanted = dict.fromkeys(names, pa.string())
    tables, n_rows, unreadable, multiline = [], 0, 0, 0
    with (
        TemporaryDirectory() as scratch,
        closing(_batches(sample, source, wanted, scratch)) as all_,
    ):  # type: ignore[type-var]
        for batch in all_:
            tables.append(batch.table)
            n_rows += batch.table.num_rows
            unreadable += len(batch.left_out.get(UNREADABLE, ()))
            multiline += 0 if batch.multiline is None else len(batch.multiline)
            if n_rows >= ROWS:
                break
    if not n_rows:
        shown = ", ".join(names)[:300]
        raise SourceError(f"{sample.name}: no row has the values of its first line ({shown})")
    table = pa.concat_tables(tables, promote_options="permissive").slice(0, ROWS)
    return _Part(table, n_rows, unreadable, multiline)


def _batches(
    sample: Sample, source: SourceConfig, wanted: dict[str, pa.DataType], scratch: str
) -> Generator[RawBatch, None, None]:
    if sample.format == "parquet":
        with closing(raw_files(sample.path, sample.name, EVERY, Path(scratch))) as files:  # type: ignore[type-var]
            yield from read_batches(next(files), source, wanted, is_strict=False)
        return
    content = sample.text.encode()
    if sample.format == "jsonl":  # an array may be cut
        content = b"".join(lines_of(sample.text, sample.name))
    raw = RawFile(sample.name, BytesIO(content), "", content[:4096])
    yield from read_batches(raw, source, wanted, is_strict=False)
