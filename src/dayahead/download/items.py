"""The table of items: fetched and converted like a log, then checked as a whole."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import AVAILABLE_FROM, AVAILABLE_UNTIL, EVENT_TIME, ITEM_ID, ROW
from dayahead.core.errors import SourceError
from dayahead.dataset.item_table import ItemTableConfig
from dayahead.dataset.losses import LARGE
from dayahead.dataset.manifest import ITEMS_FILE, EventsFile, ItemsRecord, QualityResult
from dayahead.dataset.time import PLAUSIBLE, microseconds
from dayahead.download.batches import EXAMPLES
from dayahead.download.convert import Conversion, Files, convert
from dayahead.download.parts import dropped_of, fetch_files, link_parts, records_of, report_losses
from dayahead.download.quality import check_limits, totals
from dayahead.download.sources import Source

_NUMBER = "number"
_log = logging.getLogger(__name__)
REPLACED = "replaced"
"""Check of rows that a later row of the same item and time replaces."""
NEVER_AVAILABLE = "never_available"
"""Check of rows whose item is never recommended: its availability ends before it begins."""

CAUSES = {
    "unreadable": "quality.unreadable, as a value cannot be read",
    "no item_id": "items.item_id, as they have none",
    "no event_time": "items.time.column, as they have none",
    "outside time.between": "items.time.between",
}
"""Settings by the reasons for which rows are left out."""


@dataclass(frozen=True)
class Items:
    """The converted table."""

    files: Files
    quality: tuple[QualityResult, ...]

    def link(self, folder: Path) -> ItemsRecord:
        """Link items-*.parquet into a folder; return what manifest.json says of them."""
        return ItemsRecord(
            rows=sum(each.rows for each in self.files),
            dropped=dropped_of(self.files),
            files=records_of(self.files),
            parts=link_parts(self.files, folder, ITEMS_FILE),
            quality=self.quality,
        )


def fetch_items(table: ItemTableConfig, name: str) -> list[Source]:
    """Fetch the files or tables of items.source; raises what `fetch_files` does."""
    with _of_items(name):
        return fetch_files(table, name)


def convert_items(sources: Sequence[Source], table: ItemTableConfig, name: str) -> Items:
    """Convert the table of items, and check it as a whole.

    Raises:
        SourceError: a file is damaged or not as the data set's file says, there is no row, vectors
            differ in length, or too many rows have a defect.
    """
    with _of_items(name):
        files = [convert(source, table) for source in sources]
        if not any(each.events for each in files):
            raise SourceError(_why_no_item(files))
        for vector, config in table.items.vectors.items():
            if config.kind == "vector":
                _check_lengths(files, vector)
    results = [*totals(files, table), _replaced(files, table), *_never_available(files, table)]
    check_limits(results, table, name, "table of items")
    report_losses(files, "rows of the table of items", CAUSES)
    _warn_of_unavailable(results, name)
    return Items(files, tuple(results))


@contextmanager
def _of_items(name: str) -> Iterator[None]:
    """Say of errors that they are about the table of items: its settings have the same names."""
    try:
        yield
    except SourceError as error:
        raise type(error)(f"datasets/{name}.yaml, section items: {error}") from None


def _why_no_item(files: Files) -> str:
    read, dropped = sum(each.rows for each in files), dropped_of(files)
    reasons = ", ".join(f"{CAUSES.get(reason, reason)}: {n:,}" for reason, n in dropped.items())
    if not read:
        names = ", ".join(each.source.file for each in files)[:300]
        return f"no item in {names}, which have no rows. Fetch or copy them again"
    return f"no item in {read:,} rows, left out by {reasons}"


def _parts(files: Files) -> Iterator[tuple[Conversion, EventsFile]]:
    return ((conversion, part) for conversion in files for part in conversion.parts)


def _check_lengths(files: Files, vector: str) -> None:
    first: tuple[int, str] | None = None
    for conversion, part in _parts(files):
        rows = pq.read_table(conversion.path(part), columns=[vector, ROW])
        rows = rows.filter(rows[vector].is_valid())
        lengths = pc.list_value_length(rows[vector]).to_numpy()
        numbers = rows[ROW].to_numpy()
        if first is None and len(rows):
            first = int(lengths[0]), _place(conversion, numbers[0])
        if first and len(other := np.flatnonzero(lengths != first[0])):
            where = _place(conversion, numbers[other[0]])
            raise SourceError(
                f"{where}: vectors.{vector}: expected {first[0]} numbers, as in {first[1]}, found "
                f"{lengths[other[0]]}. Give all items vectors of one model"
            )


def _place(conversion: Conversion, row: int) -> str:
    return f"{conversion.source.url}{conversion.quality.location(int(row))}"


def _replaced(files: Files, table: ItemTableConfig) -> QualityResult:
    """Count the rows that a later one of the same item and time replaces."""
    keys = [ITEM_ID, EVENT_TIME] if table.has_times else [ITEM_ID]
    rows = _columns(files, keys)
    numbered = rows.append_column(_NUMBER, pa.array(np.arange(len(rows))))
    last = numbered.group_by(keys).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    is_replaced = np.ones(len(rows), bool)
    is_replaced[last.to_numpy()] = False
    return _counted(REPLACED, files, is_replaced)


def _never_available(files: Files, table: ItemTableConfig) -> Iterator[QualityResult]:
    """Count the rows whose availability ends before it begins, or implausibly early.

    Many shops write a date such as 1970-01-01 where there is none; here it is a time.
    """
    if AVAILABLE_UNTIL not in table.items.availability:
        return
    rows = _columns(files, [*table.items.availability])
    times = {name: rows[name].cast(pa.int64()) for name in table.items.availability}
    until, earliest = times[AVAILABLE_UNTIL], microseconds(PLAUSIBLE[0])
    # A null, for which none is earlier, is left out of the maximum.
    start = [times[AVAILABLE_FROM]] if AVAILABLE_FROM in times else []
    is_never = pc.less_equal(until, pc.max_element_wise(*start, pa.scalar(earliest)))
    is_never = pc.fill_null(is_never, fill_value=False)
    yield _counted(NEVER_AVAILABLE, files, is_never.to_numpy())


def _warn_of_unavailable(results: Sequence[QualityResult], name: str) -> None:
    """Log a line if more than a tenth of the rows are never available."""
    for each in results:
        if each.check == NEVER_AVAILABLE and each.share > LARGE:
            _log.warning(
                "download: %.0f %% of the rows of the table of items (%s) are available until a "
                "time before they are so, and never recommended; first %s. Check "
                "items.available_from and items.available_until in datasets/%s.yaml",
                *(100 * each.share, f"{each.found:,}", each.examples[0], name),
            )


def _columns(files: Files, names: Sequence[str]) -> pa.Table:
    """Return columns of the whole table."""
    return pa.concat_tables(
        pq.read_table(conversion.path(part), columns=[*names]) for conversion, part in _parts(files)
    )


def _counted(check: str, files: Files, flags: npt.NDArray[np.bool_]) -> QualityResult:
    """Count the rows that are flagged, of the whole table."""
    parts = [*_parts(files)]
    ends = np.cumsum([part.events for _, part in parts])
    found, examples = np.flatnonzero(flags), []
    for index in found[:EXAMPLES]:
        number = int(np.searchsorted(ends, index, side="right"))
        conversion, part = parts[number]
        row = pq.read_table(conversion.path(part), columns=[ROW])[ROW]
        within = int(index - ends[number]) + part.events
        examples.append(_place(conversion, row[within].as_py()))
    return QualityResult(check, len(found), len(flags), None, tuple(examples))
