"""A data set's files, or its generator, into data/raw: the event table and its manifest."""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from dayahead.config.dataset import DatasetConfig, SyntheticConfig
from dayahead.data.archives import raw_files
from dayahead.data.events import EventBatch, event_schema, source_columns, to_events
from dayahead.data.fetching import SourceFile, fetched, listed
from dayahead.data.parts import Part, part_name, write_parts
from dayahead.data.records import Records, read_records
from dayahead.data.synthetic import as_utc, generate, log_end
from dayahead.errors import DataError, SourceError
from dayahead.files import fingerprint, write_json

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
    parts: list[Part] = field(default_factory=list)

    def count(self, batch: EventBatch) -> None:
        """Add the rows of a batch."""
        self.rows += batch.n_rows
        self.events += batch.table.num_rows
        self.dropped.update(batch.dropped)


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
            if dataset.source.synthetic is not None:
                entries = [_generated(dataset, dataset.source.synthetic, aside)]
            else:
                entries = _converted_files(dataset, name, aside)
            write_json(aside / "manifest.json", _manifest(dataset, name, entries))
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


def _generated(dataset: DatasetConfig, config: SyntheticConfig, aside: Path) -> _FileEntry:
    entry = _FileEntry("synthetic", "synthetic", 0, fingerprint({"config": repr(config)}))
    batch = to_events(Records(generate(config), "synthetic", "row", 1), dataset, first_row=0)
    entry.count(batch)
    entry.parts = write_parts(aside, event_schema(dataset), iter([batch.table]))
    _log.info("synthetic: %s events generated", f"{entry.events:,}")
    return entry


def _converted_files(dataset: DatasetConfig, name: str, aside: Path) -> list[_FileEntry]:
    files = listed(dataset.source.urls, dataset.source.manual)
    if unknown := sorted(set(dataset.source.sha256) - {file.name for file in files}):
        raise SourceError(
            f"datasets/{name}.yaml: source.sha256 names {', '.join(unknown)}, but source.urls "
            f"finds only {', '.join(file.name for file in files)[:300]}"
        )
    entries: list[_FileEntry] = []
    for file in files:
        entries.append(_converted_file(file, dataset, aside, sum(len(e.parts) for e in entries)))
    if not any(entry.events for entry in entries):
        raise SourceError(f"datasets/{name}.yaml: no event in any of its {len(files)} files")
    return entries


def _converted_file(
    file: SourceFile, dataset: DatasetConfig, aside: Path, n_parts: int
) -> _FileEntry:
    path, sha256 = fetched(file, dataset.source.sha256.get(file.name))
    entry = _FileEntry(file.recorded, file.name, path.stat().st_size, sha256)

    def tables() -> Iterator[pa.Table]:
        columns = source_columns(dataset)
        with tqdm(unit="rows", unit_scale=True, desc=file.name, disable=None) as bar:
            for raw in raw_files(path, file.shown, dataset.source.members, aside):
                for records in read_records(raw, dataset.source, columns):
                    batch = to_events(records, dataset, entry.rows)
                    entry.count(batch)
                    bar.update(batch.n_rows)
                    yield batch.table

    own = aside / file.name
    own.mkdir()
    entry.parts = write_parts(own, event_schema(dataset), tables())
    for number, part in enumerate(entry.parts, start=n_parts):
        (own / part.file).rename(aside / part_name(number))
    own.rmdir()
    _log.info("%s: %s rows, %s events", file.name, f"{entry.rows:,}", f"{entry.events:,}")
    return entry


def _manifest(dataset: DatasetConfig, name: str, entries: list[_FileEntry]) -> dict[str, Any]:
    parts = list(_listed_parts(entries))
    ends = [datetime.fromisoformat(part["last_event"]) for part in parts]
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
        "files": [
            {key: value for key, value in vars(entry).items() if key != "parts"}
            for entry in entries
        ],
        "parts": parts,
    }


def _listed_parts(entries: list[_FileEntry]) -> Iterator[dict[str, Any]]:
    """Parts under their names in data/raw; a row's number in the log is `first_row` + `row`."""
    numbers = count()
    first_row = 0
    for entry in entries:
        for part in entry.parts:
            yield vars(part) | {"file": part_name(next(numbers)), "first_row": first_row}
        first_row += entry.rows
