"""data/raw/ as `download` left it: what is there, and whether it suits the data set."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW, SETTLED
from dayahead.core.errors import DataError
from dayahead.core.files import read_json
from dayahead.core.fingerprints import sha256_of
from dayahead.dataset.schema import DatasetConfig
from dayahead.features.arrays import Ints, ints, set_column


@dataclass(frozen=True)
class Part:
    """One events-*.parquet."""

    path: Path
    sha256: str
    events: int
    first_row: int
    """What its rows' numbers, which count within their source file, begin at in the whole log."""


@dataclass(frozen=True)
class EventLog:
    """The event table's files."""

    parts: tuple[Part, ...]
    end: datetime
    """Up to here the log is whole."""


@dataclass(frozen=True)
class Piece:
    """Events to be read: a part of the log, or what an earlier run carried over, or some of it."""

    path: Path
    shifts: Mapping[int, int]
    """What is added to row numbers, by the number from which on; ascending."""
    groups: tuple[int, ...] | None = None
    """Row groups of the file; null: all."""

    @classmethod
    def of_part(cls, part: Part) -> "Piece":
        """Number a part's rows over the whole log."""
        return cls(part.path.absolute(), {0: part.first_row})

    @property
    def n_events(self) -> int:
        """Rows to be read."""
        return sum(self._rows_by_group().values())

    def cut(self, n_rows: int) -> list["Piece"]:
        """Cut it between row groups, every `n_rows` or a little later."""
        rows = self._rows_by_group()
        begins = np.cumsum([0, *rows.values()])[:-1] // n_rows
        groups = np.array(list(rows), dtype=np.int64)
        pieces = [groups[begins == begin].tolist() for begin in np.unique(begins)]
        return [replace(self, groups=tuple(piece)) for piece in pieces] or [self]

    def _rows_by_group(self) -> dict[int, int]:
        file = pq.read_metadata(self.path)
        groups = range(file.num_row_groups) if self.groups is None else self.groups
        return {group: file.row_group(group).num_rows for group in groups}

    def tables(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Read some rows at a time: the columns named, SETTLED, and what a run added to events."""
        file = pq.ParquetFile(self.path)
        is_part = SETTLED not in file.schema_arrow.names
        wanted = columns if is_part else None
        for batch in file.iter_batches(n_rows, self.groups, wanted):
            events = pa.Table.from_batches([batch])
            if is_part:
                events = set_column(events, SETTLED, pa.array(np.zeros(len(events), dtype=bool)))
            yield set_column(events, ROW, pa.array(self._numbered(ints(events[ROW]))))
        if file.metadata.num_rows == 0:
            empty = file.schema_arrow.empty_table()
            empty = set_column(empty.select(columns), SETTLED, pa.array([], pa.bool_()))
            yield empty

    def _numbered(self, rows: Ints) -> Ints:
        begins = np.array(list(self.shifts))
        shifts = np.array(list(self.shifts.values()))
        numbered: Ints = rows + shifts[np.searchsorted(begins, rows, side="right") - 1]
        return numbered


def require_whole(parts: Sequence[Part]) -> None:
    """Check that parts hold the bytes that `download` wrote: not every flipped bit shows itself.

    Raises:
        DataError: one does not.
    """
    with ThreadPoolExecutor() as threads:
        found = threads.map(sha256_of, [part.path for part in parts])
        bad = [
            part.path for part, sha256 in zip(parts, found, strict=True) if sha256 != part.sha256
        ]
    if bad:
        raise DataError(
            f"{', '.join(map(str, bad))}: damaged, not the bytes that were downloaded; "
            f"run `dvc repro -f download`"
        )


def past_columns(dataset: DatasetConfig) -> list[str]:
    """Columns of the event table by which past events are told; none where none is wanted."""
    if dataset.sessions.past_max_length == 0:
        return []
    features = dataset.features.items()
    read = [name for name, feature in features if feature.column is not None]
    return [ITEM_ID, EVENT_TIME, *read]


def read_event_log(raw: Path, dataset: DatasetConfig) -> EventLog:
    """Read data/raw/manifest.json and check the parts it names.

    Raises:
        DataError: the folder is missing, damaged, empty or of another data set.
    """
    path = raw / "manifest.json"
    try:
        manifest = read_json(path)
        parts = tuple(
            Part(raw / part["file"], part["sha256"], part["events"], part["first_row"])
            for part in manifest["parts"]
        )
        log = EventLog(parts, datetime.fromisoformat(manifest["log_end"]))
        columns = [pq.read_schema(part.path).names for part in parts]
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: not a readable event table ({type(error).__name__}: {error}); "
            f"run `dvc repro -f download`"
        ) from None
    if not any(part.events for part in parts):
        raise DataError(f"{path}: expected events, found none; run `dvc repro -f download`")
    for part, names in zip(parts, columns, strict=True):
        missing = sorted(set(dataset.event_schema().names) - set(names))
        if missing:
            raise DataError(
                f"{part.path}: columns {', '.join(missing)} of the data set's file are missing "
                f"(found {', '.join(names)}); run `dvc repro download`"
            )
    return log
