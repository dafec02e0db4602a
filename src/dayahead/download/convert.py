"""One source file to events files (parquet), converted once and cached."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from tqdm import tqdm

from dayahead.core.cache import Cache, reading_entry
from dayahead.core.columns import EVENT_TIME
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import fingerprint, package_version, sha256_of, source_fingerprint
from dayahead.core.project import cache_root
from dayahead.dataset.item_table import ItemTableConfig
from dayahead.dataset.manifest import EVENTS_FILE, EventsFile, SourceRecord
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.archives import raw_files
from dayahead.download.batches import RawBatch, kept_rows
from dayahead.download.clocks import SLACKS, OutOfOrderError, ZoneClock
from dayahead.download.compression import kind_of_file
from dayahead.download.events import source_columns, to_events
from dayahead.download.file_quality import FileQuality, QualityCounters
from dayahead.download.ids import spelled_columns
from dayahead.download.readers import read_batches
from dayahead.download.repeats import Ints, repeats_within
from dayahead.download.shop import catalogue, events_of
from dayahead.download.sources import Source
from dayahead.download.unit_check import UnitCheck

ROOMS = ("config", "core", "dataset", "download")
"""Rooms whose source affects the conversion."""
PACKAGES = ("charset-normalizer", "numpy", "pandas", "py7zr", "pyarrow")
"""Packages that shape the events files and counts."""
ROW_GROUP = 1 << 17
MAX_EVENTS = 32 * ROW_GROUP
"""Maximum number of events per parquet file."""
_RECORD = "conversion.json"
_REPEATS_FILE, _REPEATED = "repeats-{:05d}.parquet", "row"
"""Name of the file of a part's repeated rows, by the number of the part, and its column."""
_GROWTH = 2
"""Upper bound of bytes written per byte of a compressed file: 1.5 for G1, 1.3 for REES46."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Conversion:
    """The events of one source file."""

    source: Source
    folder: Path
    """Holds the events files."""
    rows: int
    dropped: dict[str, int]
    """Number of rows that are no events, by reason."""
    parts: list[EventsFile]
    quality: FileQuality
    filtered: dict[str, dict[str, int]] = field(default_factory=dict)
    """Most frequent values, by column, for which `source.where` left out rows."""
    replaced: dict[str, Path] = field(default_factory=dict)
    """Events files from which duplicates were dropped, by the name of the one they replace."""

    @property
    def events(self) -> int:
        """Events in all parts."""
        return sum(part.events for part in self.parts)

    def path(self, part: EventsFile) -> Path:
        """Return where a part is."""
        return self.replaced.get(part.file, self.folder / part.file)

    def repeats(self, number: int) -> Ints:
        """Return the rows of a part that equal an earlier one of it."""
        path = self.folder / _REPEATS_FILE.format(number)
        if not path.exists():
            return np.empty(0, np.int64)
        rows: Ints = pq.read_table(path)[_REPEATED].to_numpy()
        return rows


Files = Sequence[Conversion]
"""Those of a log, or of a table of items, in its order."""


def space_needed(source: Source, dataset: DatasetConfig) -> int:
    """Return an upper bound of the bytes that converting needs; 0 if it is cached."""
    if conversion_key(source, dataset) in events_cache():
        return 0
    is_packed = source.path is not None and kind_of_file(source.path) not in ("", "parquet")
    return source.bytes * (_GROWTH if is_packed else 1)


def convert(source: Source, dataset: DatasetConfig) -> Conversion:
    """Return a source's events files from the cache, where they are converted if missing.

    Raises:
        SourceError: the source is damaged or not as the data set's file says.
        OSError: the cache cannot be written.
    """
    key = conversion_key(source, dataset)
    is_cached = key in events_cache()
    conversion = events_cache().get_or_build(
        key, lambda folder: _convert(source, dataset, folder), partial(_read_conversion, source)
    )
    counts = f"{conversion.rows:,} rows, {conversion.events:,} events"
    _log.info("%s: %s%s", source.file, counts, " (cached)" if is_cached else "")
    if not conversion.rows:
        _log.warning("%s: is empty", source.file)
    return conversion


def events_cache() -> Cache:
    """Return the cache of events files."""
    return Cache(cache_root() / "events")


def conversion_key(source: Source | SourceRecord, dataset: DatasetConfig) -> str:
    """Return the key of a source's entry in the cache."""
    return fingerprint(
        {
            "sha256": source.sha256,
            "settings": _settings(dataset),
            "source": source_fingerprint(*ROOMS),
            "packages": {name: package_version(name) for name in PACKAGES},
        }
    )


def _settings(dataset: DatasetConfig) -> str:
    """Return the settings of the data set's file that affect the conversion."""
    source, time = dataset.source, dataset.time
    return repr(
        [
            (source.format, source.delimiter, source.quote, source.header, source.nulls),
            (source.decimal, source.thousands, source.members),
            (source.encoding, source.escape, source.explode, source.where),
            dataset.columns,
            (time.column, time.unit, time.formats, time.zone, time.offset, time.offset_unit),
            # Not today: by default later times are no strays before `stage` looks at the log.
            time.limits,
            (dataset.event_columns(), str(dataset.event_schema())),
            # Whether lines may be unreadable changes how they are read; the limit is checked later.
            dataset.quality.unreadable > 0,
            dataset.forgotten if dataset.forgotten.users else None,
        ]
    )


def _read_conversion(source: Source, folder: Path) -> Conversion:
    with reading_entry():
        record = {**read_json(folder / _RECORD), "source": source, "folder": folder}
        conversion = TypeAdapter(Conversion).validate_python(record)
        for number, part in enumerate(conversion.parts):
            if part.file != EVENTS_FILE.format(number) or not (folder / part.file).is_file():
                raise ValueError(f"{_RECORD} lists {part.file!r}, which is no part of the entry")
            conversion.repeats(number)
    return conversion


def _convert(source: Source, dataset: DatasetConfig, folder: Path) -> None:
    # In UTC no time occurs twice.
    for slack in SLACKS if dataset.time.zone != "UTC" else SLACKS[-1:]:
        with suppress(OutOfOrderError):
            return _convert_assuming(slack, source, dataset, folder)
    return None


def _convert_assuming(
    slack: int | None, source: Source, dataset: DatasetConfig, folder: Path
) -> None:
    """Convert a source whose rows go back in time by at most `slack` (see `ZoneClock`)."""
    counters = QualityCounters(source.shown, spelled_columns(dataset))
    units = UnitCheck(dataset.time)
    dropped: Counter[str] = Counter()
    filtered: dict[str, Counter[str]] = {column: Counter() for column in dataset.source.where}
    clocks: dict[str, ZoneClock] = defaultdict(lambda: ZoneClock(dataset.time.zone, slack))

    def tables() -> Iterator[pa.Table]:
        with tqdm(unit="rows", unit_scale=True, desc=source.file, disable=None) as bar:
            for raw in _raw_batches(source, dataset, folder):
                batch = to_events(raw, dataset, counters.n_rows, clocks[raw.name])
                counters.count_batch(raw, batch)
                units.add(batch, counters.found.location)
                dropped.update(batch.dropped)
                for column, values in raw.filtered.items():
                    filtered[column].update(values)
                bar.update(raw.n_rows)
                yield batch.table

    parts = _write_parts(folder, dataset.event_schema(), tables())
    units.check(source.shown)
    for number, part in enumerate(parts if not isinstance(dataset, ItemTableConfig) else ()):
        if len(rows := repeats_within(folder / part.file)):
            pq.write_table(pa.table({_REPEATED: rows}), folder / _REPEATS_FILE.format(number))
    record = {
        "rows": counters.n_rows,
        "dropped": dropped,
        "parts": [asdict(part) for part in parts],
        "quality": asdict(counters.found),
        "filtered": {column: dict(each.most_common(20)) for column, each in filtered.items()},
    }
    write_json(folder / _RECORD, record)


def _raw_batches(source: Source, dataset: DatasetConfig, scratch: Path) -> Iterator[RawBatch]:
    if source.path is None:
        assert dataset.source.synthetic is not None
        make = catalogue if isinstance(dataset, ItemTableConfig) else events_of
        generated = RawBatch(make(dataset.source.synthetic), source.file, "row", 1)
        yield kept_rows(generated, dataset.source.where)
        return
    columns = source_columns(dataset)
    is_strict = dataset.quality.unreadable == 0
    for raw in raw_files(source.path, source.shown, dataset.source.members, scratch):
        yield from read_batches(raw, dataset.source, columns, is_strict=is_strict)


def _write_parts(folder: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> list[EventsFile]:
    """Write tables of any length; the same rows give the same bytes however tables are cut."""
    numbered = enumerate(row_groups(tables))
    return [
        write_part(folder / EVENTS_FILE.format(number), schema, (group for _, group in groups))
        for number, groups in groupby(numbered, lambda each: each[0] // (MAX_EVENTS // ROW_GROUP))
    ]


def write_part(path: Path, schema: pa.Schema, groups: Iterator[pa.Table]) -> EventsFile:
    """Write an events file of these row groups; at least one has an event."""
    n_events = 0
    times = []
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for group in groups:
            out.write_table(group, row_group_size=ROW_GROUP)
            n_events += group.num_rows
            if EVENT_TIME in schema.names:
                times += [time for time in pc.min_max(group[EVENT_TIME]).as_py().values() if time]
    first, last = (end(times).isoformat() if times else "" for end in (min, max))
    return EventsFile(path.name, n_events, sha256_of(path), first, last)


def row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Cut tables of any length into tables of ROW_GROUP rows, the last one shorter."""
    held: list[pa.Table] = []
    n_held = 0
    for table in tables:
        held.append(table)
        n_held += table.num_rows
        if n_held >= ROW_GROUP:
            whole = pa.concat_tables(held).combine_chunks()
            end = n_held - n_held % ROW_GROUP
            yield from (whole.slice(start, ROW_GROUP) for start in range(0, end, ROW_GROUP))
            held, n_held = [whole.slice(end)], n_held - end
    if n_held:
        yield pa.concat_tables(held).combine_chunks()
