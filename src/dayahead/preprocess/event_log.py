"""data/raw as `download` wrote it: its parts, checked against the data set and read in chunks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SESSION_START
from dayahead.core.errors import DataError
from dayahead.core.files import write_parquet
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.manifest import EventsFile, RawManifest
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import ints, set_column

FINALISED = "_finalised"
"""Column that marks events of windows that an earlier run wrote: they only serve as context."""


@dataclass(frozen=True)
class Chunk:
    """Events that one task reads: row groups of a part, or of an earlier run's carry-over."""

    path: Path
    row_shifts: Mapping[int, int]
    """Shift to add to row numbers, by the first row number that it applies to; ascending."""
    row_groups: Mapping[int, int]
    """Number of rows of each row group that is read."""

    @classmethod
    def of_file(cls, path: Path, row_shifts: Mapping[int, int]) -> "Chunk":
        """Return a whole file."""
        path = path.absolute()
        file = pq.read_metadata(path)
        sizes = {n: file.row_group(n).num_rows for n in range(file.num_row_groups)}
        return cls(path, row_shifts, sizes)

    @property
    def n_events(self) -> int:
        """Rows to be read."""
        return sum(self.row_groups.values())

    def split(self, n_rows: int) -> list["Chunk"]:
        """Split between row groups, into pieces of about `n_rows` rows."""
        pieces: dict[int, dict[int, int]] = defaultdict(dict)
        n_before = 0
        for group, size in self.row_groups.items():
            pieces[n_before // n_rows][group] = size
            n_before += size
        return [replace(self, row_groups=piece) for piece in pieces.values()] or [self]

    def tables(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Read `n_rows` at a time, after an empty table with the columns.

        These are the columns named, or all of a carry-over, and FINALISED.
        """
        file = pq.ParquetFile(self.path)
        is_part = FINALISED not in file.schema_arrow.names
        wanted = columns if is_part else None
        begins, shifts = np.array([*self.row_shifts]), np.array([*self.row_shifts.values()])
        batches = file.iter_batches(n_rows, [*self.row_groups], wanted)
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        # The empty table comes first: the shuffle takes its schema from it, even without events.
        for events in chain([file.read_row_groups([], wanted)], tables):
            if is_part:
                events = set_column(events, FINALISED, pa.array(np.zeros(len(events), dtype=bool)))
            rows = ints(events[ROW])
            rows = rows + shifts[np.searchsorted(begins, rows, side="right") - 1]
            yield set_column(events, ROW, pa.array(rows))


def split_strays(events: pa.Table, span: tuple[int, int] | None) -> tuple[pa.Table, pa.Table]:
    """Split off the events with a time or session start outside the log's span (None: no limit).

    A finalised event stays: an earlier run has used it.
    """
    outside = np.zeros(len(events), dtype=bool)
    begin, end = span or (0, 0)
    for column in (EVENT_TIME, SESSION_START) if span else ():
        if column in events.column_names:
            times = ints(events[column])
            outside |= (times < begin) | (times >= end)
    outside &= ~np.asarray(events[FINALISED].to_numpy())
    if not outside.any():
        return events, events.slice(0, 0)
    return events.filter(pa.array(~outside)), events.filter(pa.array(outside))


def set_aside_path(path: Path) -> Path:
    """Return where the strays of a chunk are, by the file of its other events."""
    return path.with_suffix(".strays")


def carry_strays(paths: Sequence[Path], target: Path) -> int:
    """Keep the strays of all chunks for a longer log; return their number."""
    found = [path for path in map(set_aside_path, paths) if path.exists()]
    if not found:
        return 0
    strays = pa.concat_tables(map(pq.read_table, found), promote_options="default")
    target.parent.mkdir(exist_ok=True)
    write_parquet(target, strays)
    for path in found:
        path.unlink()
    return len(strays)


def past_columns(dataset: DatasetConfig) -> list[str]:
    """Return the columns of the event table for past events; none if there is no past."""
    if dataset.sessions.past_max_length == 0:
        return []
    features = dataset.features.items()
    read = [name for name, feature in features if feature.column is not None]
    return [ITEM_ID, EVENT_TIME, *read]


def read_event_log(raw: Path, dataset: DatasetConfig) -> RawManifest:
    """Read data/raw/manifest.json and check the columns of the parts it names.

    Raises:
        DataError: the folder is missing, damaged, empty or of another data set.
    """
    manifest = RawManifest.read(raw)
    if not any(part.events for part in manifest.parts):
        raise DataError(f"{raw}: expected events, found none; run `dvc repro -f download`")
    for part in manifest.parts:
        check_columns(raw / part.file, dataset.event_schema().names)
    return manifest


def check_columns(path: Path, expected: Sequence[str]) -> None:
    """Check that a file of data/raw has these columns.

    Raises:
        DataError: it is unreadable, or lacks some.
    """
    try:
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: not readable ({type(error).__name__}: {error}); run `dvc repro -f download`"
        ) from None
    if missing := sorted(set(expected) - set(names)):
        raise DataError(
            f"{path}: columns {', '.join(missing)} of the data set's file are missing "
            f"(found {', '.join(names)}); run `dvc repro download`"
        )


def check_parts(raw: Path, parts: Sequence[EventsFile]) -> None:
    """Check that parts hold the bytes that `download` wrote: parquet detects not every bit flip.

    Raises:
        DataError: a part does not.
    """
    paths = [raw / part.file for part in parts]
    # Threads, because hashing releases the GIL.
    with ThreadPoolExecutor() as threads:
        found = threads.map(sha256_of, paths)
        files = zip(paths, parts, found, strict=True)
        bad = [str(path) for path, part, sha256 in files if sha256 != part.sha256]
    if bad:
        raise DataError(
            f"{', '.join(bad)}: damaged, not the bytes that were downloaded; "
            f"run `dvc repro -f download`"
        )
