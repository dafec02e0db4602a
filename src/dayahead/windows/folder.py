"""The folder of finished windows: names of its files, and reading them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import FIRST_WINDOW, ITEM_ID, ROLES, SESSION_ID, SESSION_START
from dayahead.core.errors import WindowError
from dayahead.windows.metadata import Statistics, WindowsManifest, read_manifest, read_statistics

MANIFEST = "windows.json"
STATISTICS = "statistics.json"
PREFIX = {"day": "session_start_date", "hour": "session_start_hour"}
Role = Literal["train", "valid", "test", "all"]


def window_path(folder: Path, unit: str, window: str, role: str) -> Path:
    """Path of one window's file for one role."""
    return folder / f"{PREFIX[unit]}={window}-{role}.parquet"


def vocabulary_path(folder: Path, column: str) -> Path:
    """Path of a categorical column's vocabulary."""
    return folder / "vocabulary" / f"{column}.parquet"


@contextmanager
def wrap_read_errors(where: object) -> Iterator[None]:
    """Turn what a missing or damaged file makes of its reader into a WindowError that names it."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise WindowError(
            f"{where}: not readable ({error}); run `dvc repro -f preprocess`"
        ) from None


@dataclass(frozen=True)
class Window:
    """A window that stands (state `kept` in windows.json)."""

    name: str
    """2019-10-01, or 2019-10-01T13 where the unit is the hour."""
    position: int
    """Place among the standing windows, 0 for the first."""
    start: str
    """ISO 8601, UTC."""


@dataclass(frozen=True)
class WindowFolder:
    """What `preprocess` wrote, for reading."""

    folder: Path

    @cached_property
    def manifest(self) -> WindowsManifest:
        """windows.json."""
        return read_manifest(self.folder / MANIFEST)

    @cached_property
    def statistics(self) -> Statistics:
        """statistics.json: what the features were fitted to."""
        return read_statistics(self.folder / STATISTICS)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The standing windows in order of time."""
        kept = [entry for entry in self.manifest.windows if entry.state == "kept"]
        return tuple(
            Window(entry.window, position, entry.start) for position, entry in enumerate(kept)
        )

    @cached_property
    def _vocabularies(self) -> dict[str, pa.Table]:
        return {}

    def path(self, window: Window, role: str) -> Path:
        """Path of one window's file for one role (train, valid or test)."""
        return window_path(self.folder, self.manifest.unit, window.name, role)

    def read(self, window: Window, role: Role, columns: list[str]) -> pa.Table:
        """Read a role's sessions, ordered by (session_start, session_id).

        `all` is every session of the window once, whatever roles it has.

        Raises:
            WindowError: a file is missing or unreadable.
        """
        if role != "all":
            return self._table(self.path(window, role), columns)
        wanted = list(dict.fromkeys([SESSION_START, SESSION_ID, *columns]))
        table = pa.concat_tables([self._table(self.path(window, part), wanted) for part in ROLES])
        keys = table.select([SESSION_START, SESSION_ID]).append_column(
            "row", pa.array(range(len(table)), pa.int64())
        )
        first = keys.group_by([SESSION_START, SESSION_ID]).aggregate([("row", "min")])
        first = first.sort_by([(SESSION_START, "ascending"), (SESSION_ID, "ascending")])
        return table.take(first["row_min"]).select(columns).combine_chunks()

    def n_sessions(self, window: Window, role: str) -> int:
        """Sessions of a role in a window."""
        with wrap_read_errors(self.path(window, role)):
            return int(pq.read_metadata(self.path(window, role)).num_rows)

    def items_in(self, window: Window, role: str) -> NDArray[np.int32]:
        """Catalogue indices that occur in a role's sessions, ascending, int32."""
        with wrap_read_errors(self.path(window, role)):
            file = pq.ParquetFile(self.path(window, role))
            found = [
                np.unique(batch.column(0).flatten().to_numpy())
                for batch in file.iter_batches(columns=[ITEM_ID])
            ]
        empty = np.zeros(0, np.int32)
        items: NDArray[np.int32] = np.unique(np.concatenate([empty, *found]))
        return items

    def vocabulary(self, column: str) -> pa.Table:
        """Read a column's vocabulary: index, value, first_window, events ..., by index."""
        if column not in self._vocabularies:
            self._vocabularies[column] = self._table(vocabulary_path(self.folder, column), None)
        return self._vocabularies[column]

    def n_known(self, column: str, window: Window) -> int:
        """How many values of `column` have a first window up to and including `window`."""
        first_windows = self.vocabulary(column)[FIRST_WINDOW]
        # Window names sort as text in order of time, and indices follow their first windows.
        return int(pc.sum(pc.less_equal(first_windows, window.name)).as_py() or 0)

    @staticmethod
    def _table(path: Path, columns: list[str] | None) -> pa.Table:
        with wrap_read_errors(path):
            table = pq.read_table(path, columns=columns, partitioning=None)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if not _is_finite(column):
                raise WindowError(
                    f"{path}: column {name} holds values that are no numbers, and no model could "
                    f"learn from them; run `dvc repro -f preprocess`"
                )
        return table


def _is_finite(column: pa.ChunkedArray) -> bool:
    """Whether lists of real numbers hold nothing else; other columns are not looked at."""
    if not (pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type)):
        return True
    chunks = (pc.is_finite(chunk.flatten()) for chunk in column.chunks)
    return all(pc.all(each, skip_nulls=False, min_count=0).as_py() for each in chunks)
