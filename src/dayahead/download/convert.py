"""A source file's events as parts in the store, where they outlive data/raw: converted once."""

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from filelock import FileLock
from tqdm import tqdm

from dayahead.core.files import folder_written_whole, read_json, write_json
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.core.project import cache_root
from dayahead.dataset.schema import DatasetConfig
from dayahead.download import archives, events, json_lines, parts, records, rows, synthetic
from dayahead.download import quality_checks as census
from dayahead.download.archives import raw_files
from dayahead.download.events import event_schema, source_columns, to_events
from dayahead.download.parts import Part, write_parts
from dayahead.download.quality_checks import Census, Count
from dayahead.download.records import read_records
from dayahead.download.rows import Records
from dayahead.download.synthetic import generate

_PACKED = {".gz", ".tgz", ".zst", ".zip", ".7z"}
_CHECK = "fingerprint"
"""In an entry's note: of all else in it."""
_GROWTH = 2
"""Bytes of parts for a byte of a packed file, generously: 1.5 of G1, 1.3 of REES46's layout."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """What is converted: a file on this machine, or (`path` is None) the synthetic log."""

    url: str
    """For manifest.json: without secrets."""
    file: str
    """Its own name, whose endings say how it is packed."""
    shown: str
    """For messages."""
    bytes: int
    sha256: str
    """Of its content; of the generator's settings."""
    path: Path | None


@dataclass(frozen=True)
class Conversion:
    """A source's events and what was met on the way."""

    folder: Path
    """Holds the parts."""
    rows: int
    events: int
    dropped: dict[str, int]
    parts: list[Part]
    counts: dict[str, Count]
    """Rows at fault, by check."""
    days: list[str]
    """Days (UTC) with an event."""


def space_needed(source: Source, dataset: DatasetConfig) -> int:
    """Bytes that a source's parts will need at the most; 0 if the store has them."""
    if _slot(source, dataset).is_dir():
        return 0
    is_packed = PurePosixPath(source.file.lower()).suffix in _PACKED
    return source.bytes * (_GROWTH if is_packed else 1)


def converted(source: Source, dataset: DatasetConfig) -> Conversion:
    """Give a source's parts from the store, or convert it.

    Raises:
        SourceError: the source is damaged or not as the data set's file says.
        OSError: the store cannot be written.
    """
    slot = _slot(source, dataset)
    slot.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{slot}.lock"):  # experiments of a queue share the store
        if (stored := _stored(slot, source)) is not None:
            _log.info("%s: %s events, converted before", source.file, f"{stored.events:,}")
            return stored
        with folder_written_whole(slot) as aside:
            conversion = _convert(source, dataset, aside)
            write_json(aside / "entry.json", _entry(conversion))
    n_rows, n_events = f"{conversion.rows:,}", f"{conversion.events:,}"
    _log.info("%s: %s rows, %s events", source.file, n_rows, n_events)
    return replace(conversion, folder=slot)


def _slot(source: Source, dataset: DatasetConfig) -> Path:
    """Folder of the store named after everything that the parts depend on."""
    modules = [archives, census, events, json_lines, parts, records, rows]
    modules += [synthetic] if source.path is None else []
    key = {
        "sha256": source.sha256,
        "endings": PurePosixPath(source.file.lower()).suffixes[-2:],
        "settings": _settings(dataset),
        "code": [sha256_of(Path(str(module.__file__))) for module in modules],
        "pyarrow": pa.__version__,
    }
    return cache_root() / "parts" / fingerprint(key)[:32]


def _settings(dataset: DatasetConfig) -> str:
    """What the conversion reads of the data set's file."""
    source, time = dataset.source, dataset.time
    features = [
        (name, feature.kind == "categorical", feature.column, feature.type)
        for name, feature in dataset.features.items()
        if feature.column is not None
    ]
    return repr(
        [
            (source.format, source.delimiter, source.header, source.nulls, source.members),
            dataset.columns,
            (time.column, time.unit, time.zone, time.offset, time.offset_unit),
            features,
            dataset.quality.unreadable > 0,
        ]
    )


def _stored(slot: Path, source: Source) -> Conversion | None:
    """Read an entry of the store; set it aside if its files are not what it says."""
    if not slot.is_dir():
        return None
    try:
        entry = read_json(slot / "entry.json")
        is_whole = entry.pop(_CHECK) == fingerprint(entry)
        entry["parts"] = [Part(**part) for part in entry["parts"]]
        entry["counts"] = {check: Count(**count) for check, count in entry["counts"].items()}
        conversion = Conversion(slot, **entry)
        bad = [part.file for part in conversion.parts if sha256_of(slot / part.file) != part.sha256]
        bad += [] if is_whole else ["entry.json"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        bad = [f"{type(error).__name__}: {error}"]
    if not bad:
        os.utime(slot)  # what was of use lately is kept
        return conversion
    aside = slot.with_name(f"{slot.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    slot.replace(aside)
    _log.warning(
        "%s: damaged (%s), set aside as %s; %s is converted anew",
        slot,
        ", ".join(bad),
        aside.name,
        source.file,
    )
    return None


def _entry(conversion: Conversion) -> dict[str, Any]:
    entry = {key: value for key, value in asdict(conversion).items() if key != "folder"}
    return entry | {_CHECK: fingerprint(entry)}


def _convert(source: Source, dataset: DatasetConfig, folder: Path) -> Conversion:
    seen = Census(source.shown)
    dropped: Counter[str] = Counter()
    n_rows = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal n_rows
        with tqdm(unit="rows", unit_scale=True, desc=source.file, disable=None) as bar:
            for batch_of in _records(source, dataset, folder):
                batch = to_events(batch_of, dataset, n_rows)
                seen.observe(batch_of, batch, n_rows)
                n_rows += batch.n_rows
                dropped.update(batch.dropped)
                bar.update(batch.n_rows)
                yield batch.table

    written = write_parts(folder, event_schema(dataset), tables())
    for part in written:
        seen.observe_part(folder / part.file)
    n_events = sum(part.events for part in written)
    return Conversion(folder, n_rows, n_events, dict(dropped), written, seen.counts, seen.days())


def _records(source: Source, dataset: DatasetConfig, scratch: Path) -> Iterator[Records]:
    if source.path is None:
        assert dataset.source.synthetic is not None
        yield Records(generate(dataset.source.synthetic), source.file, "row", 1)
        return
    columns = source_columns(dataset)
    is_strict = dataset.quality.unreadable == 0
    for raw in raw_files(source.path, source.shown, dataset.source.members, scratch):
        yield from read_records(raw, dataset.source, columns, strict=is_strict)
