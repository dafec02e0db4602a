"""Sessions from a file of any size, a part of them at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ITEM_ID, SESSION_ID, TIMESTAMP
from dayahead.core.errors import DataError
from dayahead.core.ragged import offsets_of
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.raw_values import cast_column, cast_csv_column, csv_options

SESSIONS_READ = 8_192
"""Rows of a file with a row per session that are read at once."""
EVENTS_READ = 65_536
"""Rows of a file with a row per event that are read at once."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of a CSV that are read at once."""
FORMATS = (".parquet", ".csv")


@dataclass(frozen=True)
class Part:
    """Some sessions of a file, with their ids."""

    ids: pa.Array
    sessions: RawSessions


class SessionFile:
    """Sessions in a parquet or CSV file: session_id, item_id, event_time and raw features.

    A row is an event, and a session's events are next to each other; or, in parquet, a row is a
    session, and the other columns are lists. Without event_time all events happen at `end`, in the
    order of the file.

    Args:
        path: of the file.
        types: raw columns that the model reads, item_id and event_time among them.
        end: microseconds since 1970.
        needs_times: whether event_time is required.

    Raises:
        DataError: the file is missing, is neither parquet nor CSV, lacks a column or has it twice.
    """

    def __init__(
        self, path: Path, types: Mapping[str, Any], end: int, *, needs_times: bool
    ) -> None:
        self.path = path
        self._types = types
        self._end = end
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: expected a file that ends in {' or '.join(FORMATS)}")
        with self._errors():
            self._parquet = self._open_parquet() if path.suffix == ".parquet" else None
            schema = (
                self._open_csv().schema if self._parquet is None else self._parquet.schema_arrow
            )
        needed = {SESSION_ID, *types} - (set() if needs_times else {EVENT_TIME})
        if missing := sorted(needed.difference(schema.names)):
            raise DataError(
                f"{path}: expected the columns {', '.join(sorted(needed))}, found "
                f"{', '.join(schema.names)}; {', '.join(missing)} is missing"
            )
        read = [SESSION_ID, *types]
        if repeated := [name for name in read if schema.names.count(name) > 1]:
            raise DataError(
                f"{path}: expected each column once, found {', '.join(schema.names)}; rename or "
                f"remove one of those with the name {' or '.join(repeated)}"
            )
        self._names = [name for name in read if name in schema.names]
        self.has_lists = _is_list(schema.field(ITEM_ID).type)
        self.id_type = schema.field(SESSION_ID).type

    @property
    def n_rows(self) -> int | None:
        """Rows of the file, where it says."""
        return None if self._parquet is None else int(self._parquet.metadata.num_rows)

    def parts(self) -> Iterator[tuple[Part, int]]:
        """Yield sessions, and the number of rows read so far.

        Raises:
            DataError: a value is not of its type, or a session's events are not together.
        """
        n_read = 0
        repeats = _Repeats()
        held: pa.Table | None = None  # the last session, which may continue in the next batch
        with self._errors():
            for batch in self._batches():
                n_read += len(batch)
                rows = self._checked(pa.Table.from_batches([batch]))
                if self.has_lists:
                    yield self._of_lists(rows), n_read
                    continue
                rows = rows if held is None else pa.concat_tables([held, rows])
                starts = _starts(rows[SESSION_ID])
                whole, held = rows.slice(0, starts[-1]), rows.slice(starts[-1])
                if len(whole):
                    yield self._of_events(whole, starts[:-1], repeats), n_read
            if held is not None:
                yield self._of_events(held, np.zeros(1, np.int64), repeats), n_read

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._parquet is None:
            yield from (batch for batch in self._open_csv() if len(batch))
            return
        size = SESSIONS_READ if self.has_lists else EVENTS_READ
        for batch in self._parquet.iter_batches(size, columns=self._names, use_threads=False):
            if len(batch):
                yield batch

    def _open_parquet(self) -> pq.ParquetFile:
        # Buffered reads instead of whole column chunks: a row group may be the whole file.
        return pq.ParquetFile(self.path, buffer_size=2**20, pre_buffer=False)

    def _open_csv(self) -> pa.csv.CSVStreamingReader:
        return pa.csv.open_csv(
            self.path,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES),
            convert_options=csv_options({SESSION_ID: pa.string(), **self._types}),
        )

    def _checked(self, rows: pa.Table) -> pa.Table:
        rows = rows.select(self._names)
        ids = rows[SESSION_ID]
        # Missing text is empty in a CSV.
        if ids.null_count or (self._parquet is None and pc.any(pc.equal(ids, "")).as_py()):
            raise DataError("a row has no session_id; expected one in each row")
        return rows

    def _of_events(self, rows: pa.Table, starts: NDArray[np.int64], repeats: "_Repeats") -> Part:
        ids = rows[SESSION_ID].take(pa.array(starts)).combine_chunks()
        if (again := repeats.first_of(ids)) is not None:
            raise DataError(
                f"the rows of session {again} are not next to each other; sort the file by "
                f"session_id"
            )
        events = self._typed({name: rows[name] for name in self._names[1:]})
        return self._part(ids, events, np.append(starts, len(rows)))

    def _of_lists(self, rows: pa.Table) -> Part:
        lists = {}
        for name in self._names[1:]:
            column = rows[name].combine_chunks()
            if not _is_list(column.type):
                raise DataError(f"{name} is {column.type}; expected lists, as in item_id")
            lists[name] = column.cast(pa.list_(column.type.value_type))
        lengths = lists[ITEM_ID].value_lengths().fill_null(0).to_numpy()
        for name, column in lists.items():
            is_other = column.value_lengths().fill_null(0).to_numpy() != lengths
            if is_other.any():
                session = rows[SESSION_ID][int(np.flatnonzero(is_other)[0])]
                raise DataError(
                    f"session {session}: {name} has another number of values than item_id; "
                    f"expected one for each event"
                )
        flat = {name: pa.chunked_array([column.flatten()]) for name, column in lists.items()}
        offsets = offsets_of(lengths)
        return self._part(rows[SESSION_ID].combine_chunks(), self._typed(flat), offsets)

    def _typed(self, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        typed = {}
        is_csv = self._parquet is None
        cast = cast_csv_column if is_csv else cast_column
        for name, column in columns.items():
            if name == EVENT_TIME and not (is_csv or pa.types.is_timestamp(column.type)):
                raise DataError(f"event_time is {column.type}; expected a timestamp")
            typed[name] = cast(name, column, self._types[name])
        if EVENT_TIME not in typed:
            n_events = len(typed[ITEM_ID])
            typed[EVENT_TIME] = pa.array(np.full(n_events, self._end)).cast(TIMESTAMP)
        return pa.table(typed)

    def _part(self, ids: pa.Array, events: pa.Table, offsets: NDArray[np.int64]) -> Part:
        sessions = RawSessions(events, offsets)
        sessions.check_times(ids)
        return Part(ids, sessions)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise DataError with the file's path."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None
        except (pa.ArrowException, FileNotFoundError, IsADirectoryError) as error:
            raise DataError(
                f"{self.path}: cannot be read as sessions ({error}); expected the columns "
                f"session_id, {', '.join(self._types)}"
            ) from None


class _Repeats:
    """Finds sessions that occur again; stores eight bytes for each."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)

    def first_of(self, ids: pa.Array) -> object:
        """Return the first of some new sessions that was there before, or None; keep them."""
        hashes = pd.util.hash_array(ids.to_pandas().to_numpy(), categorize=False)
        new, first = np.unique(hashes, return_index=True)
        rows = np.searchsorted(self._hashes, new)
        is_new = np.searchsorted(self._hashes, new, "right") == rows
        self._hashes = np.insert(self._hashes, rows, new)
        again = np.setdiff1d(np.arange(len(hashes)), first[is_new])
        return ids[int(again[0])].as_py() if len(again) else None


def _starts(ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the first row of each run of equal ids."""
    codes = ids.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.flatnonzero(np.diff(codes, prepend=-1))


def _is_list(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(type_) for is_kind in kinds)
