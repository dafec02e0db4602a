"""A data set's files, or its generator, into data/raw: the event table and its manifest."""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from dayahead.columns import EVENT_TIME
from dayahead.config.dataset import DatasetConfig, SyntheticConfig
from dayahead.data.archives import raw_files
from dayahead.data.events import EventBatch, event_schema, source_columns, to_events
from dayahead.data.fetching import SourceFile, fetched, listed
from dayahead.data.records import Records, read_records
from dayahead.data.synthetic import as_utc, generate, log_end
from dayahead.errors import DataError, SourceError
from dayahead.files import fingerprint, write_json

ROW_GROUP = 1 << 17
PART = 32 * ROW_GROUP
"""Events per parquet file: a source file becomes one part or, if it is longer, several."""
_log = logging.getLogger(__name__)


@dataclass
class _FileEntry:
    """What manifest.json says of one source file; `rows` is the sum of the rest."""

    url: str
    file: str
    bytes: int
    sha256: str
    rows: int = 0
    events: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def count(self, batch: EventBatch) -> None:
        """Add the rows of a batch."""
        self.rows += batch.n_rows
        self.events += batch.table.num_rows
        self.dropped.update(batch.dropped)


@dataclass(frozen=True)
class _Part:
    """What manifest.json says of one events-*.parquet."""

    file: str
    events: int
    first_event: datetime
    last_event: datetime


def download(dataset: DatasetConfig, name: str, folder: Path) -> None:
    """Fetch or generate a data set and write it as events-*.parquet and manifest.json.

    `folder` is written whole or not at all. Rows keep the order of `source.urls`, of a glob's
    sorted matches and of an archive's members.

    Raises:
        SourceError: a source is missing, damaged or not as the data set's file says.
        DataError: `folder` cannot be written.
    """
    try:
        with _written_aside(folder) as aside:
            writer = _PartWriter(aside, event_schema(dataset))
            if dataset.source.synthetic is not None:
                entries = [_generated(dataset, dataset.source.synthetic, writer)]
            else:
                entries = _converted_files(dataset, name, writer)
            write_json(aside / "manifest.json", _manifest(dataset, name, entries, writer.parts))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}; free space or rights") from None


@contextmanager
def _written_aside(folder: Path) -> Iterator[Path]:
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
    aside.mkdir(parents=True)
    try:
        yield aside
        shutil.rmtree(folder, ignore_errors=True)
        aside.replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _generated(
    dataset: DatasetConfig, config: SyntheticConfig, writer: "_PartWriter"
) -> _FileEntry:
    entry = _FileEntry("synthetic", "synthetic", 0, fingerprint({"config": repr(config)}))
    batch = to_events(Records(generate(config), "synthetic", "row", 1), dataset, first_row=0)
    entry.count(batch)
    writer.write(iter([batch.table]))
    _log.info("synthetic: %s events generated", f"{entry.events:,}")
    return entry


def _converted_files(dataset: DatasetConfig, name: str, writer: "_PartWriter") -> list[_FileEntry]:
    files = listed(dataset.source.urls, dataset.source.manual)
    if unknown := sorted(set(dataset.source.sha256) - {file.name for file in files}):
        raise SourceError(
            f"datasets/{name}.yaml: source.sha256 names {', '.join(unknown)}, but source.urls "
            f"finds only {', '.join(file.name for file in files)[:300]}"
        )
    entries: list[_FileEntry] = []
    for file in files:
        entries.append(_converted_file(file, dataset, writer, sum(e.rows for e in entries)))
    if not any(entry.events for entry in entries):
        raise SourceError(f"datasets/{name}.yaml: no event in any of its {len(files)} files")
    return entries


def _converted_file(
    file: SourceFile, dataset: DatasetConfig, writer: "_PartWriter", first_row: int
) -> _FileEntry:
    path, sha256 = fetched(file, dataset.source.sha256.get(file.name))
    entry = _FileEntry(file.recorded, file.name, path.stat().st_size, sha256)

    def tables() -> Iterator[pa.Table]:
        columns = source_columns(dataset)
        with tqdm(unit="rows", unit_scale=True, desc=file.name, disable=None) as bar:
            for raw in raw_files(path, file.shown, dataset.source.members, writer.folder):
                for records in read_records(raw, dataset.source, columns):
                    batch = to_events(records, dataset, first_row + entry.rows)
                    entry.count(batch)
                    bar.update(batch.n_rows)
                    yield batch.table

    writer.write(tables())
    _log.info("%s: %s rows, %s events", file.name, f"{entry.rows:,}", f"{entry.events:,}")
    return entry


class _PartWriter:
    """Writes events-00000.parquet, events-00001.parquet ... and lists them."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.parts: list[_Part] = []
        self._schema = schema

    def write(self, tables: Iterator[pa.Table]) -> None:
        """Write one source file's events; a part never holds those of two."""
        groups = _row_groups(tables)
        for first in groups:
            self._write_part(chain([first], islice(groups, PART // ROW_GROUP - 1)))

    def _write_part(self, groups: Iterator[pa.Table]) -> None:
        name = f"events-{len(self.parts):05d}.parquet"
        events = 0
        times = []
        with pq.ParquetWriter(self.folder / name, self._schema, compression="zstd") as out:
            for group in groups:
                out.write_table(group, row_group_size=ROW_GROUP)
                events += group.num_rows
                times += pc.min_max(group[EVENT_TIME]).as_py().values()
        self.parts.append(_Part(name, events, min(times), max(times)))


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Cut tables of any length into tables of ROW_GROUP rows, the last one shorter."""
    held: list[pa.Table] = []
    n_held = 0
    for table in tables:
        held.append(table)
        n_held += table.num_rows
        if n_held >= ROW_GROUP:
            joined = pa.concat_tables(held).combine_chunks()
            whole = n_held - n_held % ROW_GROUP
            yield from (joined.slice(start, ROW_GROUP) for start in range(0, whole, ROW_GROUP))
            held, n_held = [joined.slice(whole)], n_held - whole
    if n_held:
        yield pa.concat_tables(held).combine_chunks()


def _manifest(
    dataset: DatasetConfig, name: str, entries: list[_FileEntry], parts: list[_Part]
) -> dict[str, Any]:
    ends = [part.last_event for part in parts]
    if dataset.time.complete_until is not None:
        ends.append(as_utc(dataset.time.complete_until))
    if dataset.source.synthetic is not None:
        ends.append(log_end(dataset.source.synthetic))
    return {
        "dataset": name,
        "log_end": max(ends).isoformat(),
        "rows": sum(entry.rows for entry in entries),
        "events": sum(entry.events for entry in entries),
        "dropped": dict(sum((entry.dropped for entry in entries), Counter())),
        "files": [vars(entry) for entry in entries],
        "parts": [
            vars(part)
            | {
                "first_event": part.first_event.isoformat(),
                "last_event": part.last_event.isoformat(),
            }
            for part in parts
        ],
    }
