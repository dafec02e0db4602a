"""The table of items: fetched and converted like a log, then checked as a whole."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dayahead.core.columns import EVENT_TIME, ITEM_ID, ROW
from dayahead.core.errors import SourceError
from dayahead.dataset.item_table import ItemTableConfig
from dayahead.dataset.manifest import EventsFile, ItemsRecord, QualityResult, items_file_name
from dayahead.download.batches import EXAMPLES
from dayahead.download.convert import Conversion, convert
from dayahead.download.parts import Files, fetch_files, link_parts, records_of, report_losses
from dayahead.download.quality import check_limits, totals
from dayahead.download.sources import Source

_NUMBER = "number"
REPLACED = "replaced"
"""Check of rows in whose place another one of the same item and time holds."""


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
            rows=sum(conversion.rows for _, conversion in self.files),
            dropped=dict(sum((Counter(each.dropped) for _, each in self.files), Counter())),
            files=records_of(self.files),
            parts=link_parts(self.files, folder, items_file_name),
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
        files = [(source, convert(source, table)) for source in sources]
        if not any(conversion.events for _, conversion in files):
            raise SourceError(_why_no_item(files))
        for vector, config in table.items.vectors.items():
            if config.kind == "vector":
                _check_lengths(files, vector)
    counts = [(source, conversion.quality) for source, conversion in files]
    results = [*totals(counts, table), _replaced(files, table)]
    check_limits(results, table, name, "table of items")
    report_losses(files, "rows of the table of items", CAUSES)
    return Items(files, tuple(results))


@contextmanager
def _of_items(name: str) -> Iterator[None]:
    """Say of errors that they are about the table of items: its settings have the same names."""
    try:
        yield
    except SourceError as error:
        raise type(error)(f"datasets/{name}.yaml, section items: {error}") from None


def _why_no_item(files: Files) -> str:
    read = sum(conversion.rows for _, conversion in files)
    dropped = sum((Counter(conversion.dropped) for _, conversion in files), Counter())
    reasons = ", ".join(f"{CAUSES.get(reason, reason)}: {n:,}" for reason, n in dropped.items())
    return f"no item in {read:,} rows{f', left out by {reasons}' if reasons else ''}"


def _parts(files: Files) -> Iterator[tuple[Source, Conversion, EventsFile]]:
    for source, conversion in files:
        for part in conversion.parts:
            yield source, conversion, part


def _check_lengths(files: Files, vector: str) -> None:
    first: tuple[int, str] | None = None
    for source, conversion, part in _parts(files):
        rows = pq.read_table(conversion.path(part), columns=[vector, ROW])
        rows = rows.filter(rows[vector].is_valid())
        lengths = pc.list_value_length(rows[vector]).to_numpy()
        numbers = rows[ROW].to_numpy()
        if first is None and len(rows):
            first = int(lengths[0]), _place(source, conversion, numbers[0])
        if first and len(other := np.flatnonzero(lengths != first[0])):
            where = _place(source, conversion, numbers[other[0]])
            raise SourceError(
                f"{where}: vectors.{vector}: expected {first[0]} numbers, as in {first[1]}, found "
                f"{lengths[other[0]]}. Give all items vectors of one model"
            )


def _place(source: Source, conversion: Conversion, row: int) -> str:
    return f"{source.url}{conversion.quality.location(int(row))}"


def _replaced(files: Files, table: ItemTableConfig) -> QualityResult:
    """Count the rows that another one of the same item and time follows, which then holds."""
    keys = [ITEM_ID, EVENT_TIME] if table.has_times else [ITEM_ID]
    parts = list(_parts(files))
    tables = [pq.read_table(each.path(part), columns=[*keys, ROW]) for _, each, part in parts]
    rows = pa.concat_tables(tables)
    numbered = rows.append_column(_NUMBER, pa.array(np.arange(len(rows))))
    last = numbered.group_by(keys).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    replaced = np.setdiff1d(np.arange(len(rows)), last.to_numpy())
    ends = np.cumsum([len(each) for each in tables])
    examples = []
    for index in replaced[:EXAMPLES]:
        source, conversion, _ = parts[np.searchsorted(ends, index, side="right")]
        examples.append(_place(source, conversion, rows[ROW][int(index)].as_py()))
    return QualityResult(REPLACED, len(replaced), len(rows), None, tuple(examples))
