"""Messages that were delivered twice: counted by file over the whole log, and dropped."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.cache import reading_entry
from dayahead.core.columns import EVENT_ID, ROW
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import fingerprint, source_fingerprint
from dayahead.dataset.manifest import EventsFile
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.convert import ROOMS, Conversion, Files, events_cache, write_part
from dayahead.download.file_quality import FileQuality
from dayahead.download.repeats import Ints, Part, repeats_across, repeats_of

DUPLICATE, REPEATED_ID = "duplicate", "repeated event_id"
"""Reasons for which rows are no events, as manifest.json names them."""
_RECORD = "part.json"


@dataclass(frozen=True)
class _Repeats:
    """Rows of a part, distinct and ascending, that repeat an earlier event of the log."""

    within: Callable[[], Ints]
    """Reads those that equal one of the same part in every column."""
    across: Ints
    """They equal one of another part, and none of their own."""
    ids: Ints
    """They have its event_id."""

    @property
    def equal(self) -> Ints:
        """Those that equal it in every column; not held, for they may be most of the log."""
        return np.sort(np.concatenate([self.within(), self.across]))

    def dropped(self, dataset: DatasetConfig) -> dict[str, Ints]:
        """Return the rows that are left out, by reason."""
        drops = {REPEATED_ID: self.ids}
        if dataset.sessions.duplicates == "drop":
            drops[DUPLICATE] = np.setdiff1d(self.equal, self.ids, assume_unique=True)
        return {reason: rows for reason, rows in drops.items() if len(rows)}


def without_duplicates(files: Files, dataset: DatasetConfig) -> list[Conversion]:
    """Count what the log holds twice, and drop what the data set's file says.

    What is dropped depends on the files before, in order, so that files may be appended.

    Returns:
        Each file with its counts and parts as they are then.
    """
    repeats = iter(_find(files, dataset))
    found = []
    for conversion in files:
        of_file = [next(repeats) for _ in conversion.parts]
        counted = replace(conversion, quality=_counted(conversion, of_file, dataset))
        found.append(_dropped(counted, of_file, dataset))
    return found


def _find(files: Files, dataset: DatasetConfig) -> list[_Repeats]:
    parts = []
    first_row = 0
    for conversion in files:
        for number, part in enumerate(conversion.parts):
            path, known = conversion.folder / part.file, partial(conversion.repeats, number)
            parts.append(Part(path, first_row, part.first_event, part.last_event, known))
        first_row += conversion.rows
    none = [np.empty(0, np.int64)] * len(parts)
    across = repeats_across(parts) if len(parts) > 1 else none
    ids = repeats_of(parts, EVENT_ID) if dataset.columns.event_id is not None else none
    return [
        _Repeats(part.repeats, others, of_id)
        for part, others, of_id in zip(parts, across, ids, strict=True)
    ]


def _counted(
    conversion: Conversion, repeats: Sequence[_Repeats], dataset: DatasetConfig
) -> FileQuality:
    """Add the checks of the whole log to the counts of a file; those of no events have none."""
    quality, of = conversion.quality, conversion.events
    if not repeats:
        return quality
    quality = quality.with_repeats("duplicates", (each.equal for each in repeats), of)
    if dataset.columns.event_id is not None:
        quality = quality.with_repeats("event_ids", (each.ids for each in repeats), of)
        conflicts = (np.setdiff1d(each.ids, each.equal, assume_unique=True) for each in repeats)
        quality = quality.with_repeats("event_id_conflicts", conflicts, of)
    return quality


def _dropped(
    conversion: Conversion, repeats: Sequence[_Repeats], dataset: DatasetConfig
) -> Conversion:
    counts = Counter(conversion.dropped)
    parts, replaced = [], {}
    for part, each in zip(conversion.parts, repeats, strict=True):
        drops = each.dropped(dataset)
        counts.update({reason: len(rows) for reason, rows in drops.items()})
        rows = np.sort(np.concatenate([*drops.values(), np.empty(0, np.int64)]))
        if not len(rows):
            parts.append(part)
        elif len(rows) < part.events:
            smaller, replaced[part.file] = _without(part, conversion.path(part), rows)
            parts.append(smaller)
    return replace(conversion, parts=parts, dropped=dict(counts), replaced=replaced)


def _without(part: EventsFile, path: Path, rows: Ints) -> tuple[EventsFile, Path]:
    """Return a part without some rows, from the cache, where it is written if missing."""

    def build(folder: Path) -> None:
        file = pq.ParquetFile(path)
        groups = (file.read_row_group(n) for n in range(file.num_row_groups))
        kept = (table.filter(pa.array(~np.isin(table[ROW].to_numpy(), rows))) for table in groups)
        written = write_part(folder / part.file, file.schema_arrow, filter(len, kept))
        write_json(folder / _RECORD, {"part": vars(written)})

    def read(folder: Path) -> tuple[EventsFile, Path]:
        with reading_entry():
            return EventsFile(**read_json(folder / _RECORD)["part"]), folder / part.file

    without = hashlib.sha256(rows.tobytes()).hexdigest()
    key = {"part": part.sha256, "without": without, "source": source_fingerprint(*ROOMS)}
    return events_cache().get_or_build(fingerprint(key), build, read)
