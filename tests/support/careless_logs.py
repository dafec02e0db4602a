"""Files as careless programs write them, to the rows that are read."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from dayahead.core.columns import TIMESTAMP
from dayahead.dataset.source import SourceConfig
from dayahead.download.archives import raw_files
from dayahead.download.batches import RawBatch
from dayahead.download.readers import read_batches

COLUMNS = {"session": pa.string(), "item": pa.int64(), "time": TIMESTAMP}


def batches_of(
    path: Path,
    content: bytes,
    columns: dict[str, pa.DataType] | None = None,
    *,
    is_strict: bool = True,
    **source: Any,
) -> list[RawBatch]:
    """Write a file and read it."""
    path.write_bytes(content)
    config = SourceConfig(urls=("unused",), **source)
    return [
        batch
        for raw in raw_files(path, path.name, config.members, path.parent)
        for batch in read_batches(raw, config, columns or COLUMNS, is_strict=is_strict)
    ]


def rows_of(found: list[RawBatch]) -> list[tuple[Any, ...]]:
    """Values of all rows, in the order of the columns."""
    return [tuple(row.values()) for batch in found for row in batch.table.to_pylist()]


def left_out(found: list[RawBatch]) -> dict[str, list[int]]:
    """Rows that are left out, from 0 in the file, by reason."""
    rows: dict[str, list[int]] = {}
    start = 0
    for batch in found:
        for reason, indices in batch.left_out.items():
            rows.setdefault(reason, []).extend((indices + start).tolist())
        start += batch.n_rows
    return rows
