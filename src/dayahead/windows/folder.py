"""The folder data/windows: paths and reading of its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.dataset import dataset

from dayahead.core.columns import (
    EVENT_TYPE,
    FIRST_WINDOW,
    ITEM_ID,
    N_RESERVED,
    ROLES,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
)
from dayahead.core.errors import WindowError
from dayahead.core.suggestions import check_names
from dayahead.windows.items import ItemTable
from dayahead.windows.metadata import Statistics, WindowsManifest, read_metadata
from dayahead.windows.session_ids import hashed_ids

MANIFEST = "windows.json"
STATISTICS = "statistics.json"
ITEMS = "items.parquet"
GRACE_SUFFIX = "+"
"""Suffix of the first window of a value that is first seen in a window's grace: 2026-01-01+. Such a
value is known from the next window on, whatever the name of that."""
PREFIX = {
    "day": "session_start_date",
    "hour": "session_start_hour",
    "minute": "session_start_minute",
}
Role = Literal["train", "valid", "test", "all"]


def window_path(folder: Path, unit: str, window: str, role: str) -> Path:
    """Path of one window's file for one role."""
    return folder / f"{PREFIX[unit]}={window}-{role}.parquet"


def vocabulary_path(folder: Path, column: str) -> Path:
    """Path of a categorical column's vocabulary."""
    return folder / "vocabulary" / f"{column}.parquet"


def n_known(vocabulary: pa.Table, windows: Sequence[str]) -> NDArray[np.int64]:
    """Count, for each window, the values of a vocabulary whose first window is no later one.

    Window names sort as text in order of time, and indices follow first windows, so these values
    are the vocabulary's first rows.
    """
    return np.searchsorted(vocabulary[FIRST_WINDOW].to_numpy(), windows, side="right")


@contextmanager
def wrap_read_errors(where: object) -> Iterator[None]:
    """Convert errors of a missing or damaged file to WindowError with its name."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise WindowError(
            f"{where}: not readable ({error}); run `dvc repro -f preprocess`"
        ) from None


@dataclass(frozen=True)
class Window:
    """A kept window."""

    name: str
    """2019-10-01, 2019-10-01T13 or 2019-10-01T1304, by the unit."""
    position: int
    """Index among the kept windows."""
    start: str
    """ISO 8601, UTC."""

    @property
    def start_time(self) -> int:
        """Its start in microseconds since 1970."""
        return int(pa.scalar(datetime.fromisoformat(self.start), TIMESTAMP).value)


@dataclass(frozen=True)
class WindowFolder:
    """The folder that preprocess writes and train reads."""

    folder: Path
    _vocabularies: dict[str, pa.Table] = field(default_factory=dict, init=False, compare=False)
    _newest_items: dict[str, ItemTable] = field(default_factory=dict, init=False, compare=False)
    """The last one that `items_at` has returned, by window."""
    _n_known: dict[str, NDArray[np.int64]] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def manifest(self) -> WindowsManifest:
        """windows.json."""
        return read_metadata(WindowsManifest, self.folder / MANIFEST)

    @cached_property
    def statistics(self) -> Statistics:
        """statistics.json."""
        return read_metadata(Statistics, self.folder / STATISTICS)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The kept windows in order of time."""
        kept = [entry for entry in self.manifest.windows if entry.state == "kept"]
        return tuple(
            Window(entry.window, position, entry.start) for position, entry in enumerate(kept)
        )

    @cached_property
    def ends(self) -> dict[str, int]:
        """End of each kept window by its name, microseconds since 1970."""
        kept = [entry for entry in self.manifest.windows if entry.state == "kept"]
        instants = pa.array([datetime.fromisoformat(entry.end) for entry in kept], TIMESTAMP)
        return dict(
            zip((e.window for e in kept), instants.cast(pa.int64()).to_pylist(), strict=True)
        )

    def before(self, window: Window) -> Window:
        """Return the window before, the first one for itself."""
        return self.windows[max(0, window.position - 1)]

    def path(self, window: Window, role: str) -> Path:
        """Path of one window's file for one role (train, valid or test)."""
        return window_path(self.folder, self.manifest.unit, window.name, role)

    def read(self, window: Window, role: Role, columns: list[str]) -> pa.Table:
        """Read a role's sessions, ordered by (session_start, session_id).

        `all` is every session of the window once, whatever roles it has. Session ids that hold a
        user's id are hashed, here and in `take`, so that no result names a user.

        Raises:
            WindowError: a file is missing or unreadable, or contains NaN or infinity.
        """
        if role != "all":
            return self._without_users(_read_table(self.path(window, role), columns))
        wanted = list(dict.fromkeys([SESSION_START, SESSION_ID, *columns]))
        roles = reversed(ROLES)  # train last: its sessions lack events in the window's grace
        table = pa.concat_tables([_read_table(self.path(window, part), wanted) for part in roles])
        # A session with several roles is in several files, and must be read once.
        keys = table.select([SESSION_START, SESSION_ID])
        keys = keys.append_column("row", pa.array(np.arange(len(table))))
        first = keys.group_by([SESSION_START, SESSION_ID]).aggregate([("row", "min")])
        first = first.sort_by([(SESSION_START, "ascending"), (SESSION_ID, "ascending")])
        table = table.take(first["row_min"]).select(columns).combine_chunks()
        return self._without_users(table)

    def take(self, window: Window, role: str, rows: pa.Array, columns: list[str]) -> pa.Table:
        """Read some of a role's sessions, as `read` does, holding only these in memory.

        Raises:
            WindowError: as `read` does.
        """
        return self._without_users(_read_table(self.path(window, role), columns, rows))

    def batches(self, window: Window, role: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read integer columns of a role's sessions, in file order, some thousand sessions at once.

        Raises:
            WindowError: the file is missing or unreadable.
        """
        path = self.path(window, role)
        with wrap_read_errors(path), pq.ParquetFile(path) as file:
            yield from file.iter_batches(columns=columns)

    def _without_users(self, table: pa.Table) -> pa.Table:
        if SESSION_ID not in table.column_names or self.manifest.hash_seed is None:
            return table
        ids = hashed_ids(table[SESSION_ID], self.manifest.hash_seed)
        return table.set_column(table.column_names.index(SESSION_ID), SESSION_ID, ids)

    def n_sessions(self, window: Window, role: str) -> int:
        """Count the sessions of a role in a window."""
        path = self.path(window, role)
        with wrap_read_errors(path):
            return int(pq.read_metadata(path).num_rows)

    def item_counts(
        self,
        window: Window,
        role: str,
        start: int = 0,
        is_counted: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Count each catalogue index in a role's sessions, from their event `start` on.

        `is_counted` says by index which types of events count; None: all.
        """
        size = N_RESERVED + len(self.vocabulary(ITEM_ID))
        counts = np.zeros(size, np.int64)
        columns = [ITEM_ID] if is_counted is None else [ITEM_ID, EVENT_TYPE]
        for batch in self.batches(window, role, columns):
            items, *types = (
                pc.list_slice(batch[name], start).flatten().to_numpy() for name in columns
            )
            if is_counted is not None:
                items = items[is_counted[types[0]]]
            counts += np.bincount(items, minlength=size)
        return counts

    def items_in(self, window: Window, role: str) -> NDArray[np.int32]:
        """Catalogue indices that occur in a role's sessions, ascending, int32."""
        return self.item_counts(window, role).nonzero()[0].astype(np.int32)

    def vocabulary(self, column: str) -> pa.Table:
        """Read a column's vocabulary: index, value, first_window, events ..., by index."""
        if column not in self._vocabularies:
            self._vocabularies[column] = _read_table(vocabulary_path(self.folder, column))
        return self._vocabularies[column]

    @cached_property
    def items(self) -> pa.Table | None:
        """items.parquet; None where the data set has no table of items.

        Raises:
            WindowError: the file is missing or damaged.
        """
        return None if self.statistics.items is None else _read_table(self.folder / ITEMS)

    def items_between(self, before: Window | None, window: Window) -> pa.Table | None:
        """Return the rows of `items` that are known after a window, but not after one before it."""
        if self.items is None:
            return None
        names = [each.name for each in (before, window) if each is not None]
        *start, end = np.searchsorted(self._item_windows, names, "right").tolist()
        first = start[0] if start else 0
        return self.items.slice(first, end - first)

    @cached_property
    def _item_windows(self) -> NDArray[Any]:
        """Window of each row of `items`, ascending; none where there is no table."""
        return np.array([]) if self.items is None else self.items[FIRST_WINDOW].to_numpy()

    @property
    def first_items(self) -> ItemTable | None:
        """The first row of each item."""
        if self.items is None:
            return None
        _, places = np.unique(self.items[ITEM_ID].to_numpy(), return_index=True)
        return ItemTable(self.items.take(pa.array(places)).combine_chunks())

    def items_at(self, window: Window) -> ItemTable | None:
        """Return the newest row of each item that is known after a window."""
        if self.items is None:
            return None
        if window.name in self._newest_items:  # a fit begins with what the one before ended with
            return self._newest_items[window.name]
        n_known = int(np.searchsorted(self._item_windows, window.name, "right"))
        known = self.items.slice(0, n_known)
        # The first of the reversed items is the last row.
        _, places = np.unique(known[ITEM_ID].to_numpy()[::-1], return_index=True)
        found = ItemTable(known.take(pa.array(n_known - 1 - places)).combine_chunks())
        self._newest_items.clear()
        self._newest_items[window.name] = found
        return found

    def categorical_column(self, feature: str, setting: str) -> str:
        """Return the column of a categorical feature, named by a setting.

        Raises:
            ConfigError: the windows have no such feature.
        """
        features = self.statistics.features
        known = [name for name, about in features.items() if about.kind == "categorical"]
        check_names(setting, [feature], known, "categorical feature")
        return features[feature].columns[0]

    def n_known(self, column: str, window: Window) -> int:
        """Count the values of a column that are in its vocabulary at `window`."""
        if column not in self._n_known:
            names = [each.name for each in self.windows]
            self._n_known[column] = n_known(self.vocabulary(column), names)
        return int(self._n_known[column][window.position])

    def n_in_files(self, column: str, window: Window) -> int:
        """Count the values known in a window's files, which include those of its grace."""
        return int(n_known(self.vocabulary(column), [window.name + GRACE_SUFFIX])[0])


def _read_table(
    path: Path, columns: list[str] | None = None, rows: pa.Array | None = None
) -> pa.Table:
    with wrap_read_errors(path):
        if rows is None:
            table = pq.read_table(path, columns=columns, partitioning=None)
        else:  # unlike Table.take, this does not load the whole file
            table = dataset(path).take(rows, columns=columns)
    return check_numbers(table, path)


def check_numbers(table: pa.Table, path: Path) -> pa.Table:
    """Return the table as it is; raise WindowError if a number in it is NaN, infinite or null."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type):
            # Nulls become NaN, and are found too.
            chunks = (chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks)
            if not all(np.isfinite(values).all() for values in chunks):
                raise WindowError(
                    f"{path}: column {name} contains NaN or infinite values; "
                    f"run `dvc repro -f preprocess`"
                )
    return table
