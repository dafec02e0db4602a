"""Tables of items beside windows that are written by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from dayahead.core.columns import ITEM_ID, TIMESTAMP
from dayahead.core.files import write_json, write_parquet
from dayahead.windows.folder import ITEMS, STATISTICS, WindowFolder
from dayahead.windows.metadata import ItemStatistics
from support.window_folders import day

VECTOR = "title"


@dataclass(frozen=True)
class Row:
    """A row of a table of items."""

    item: int
    """Raw id."""
    vector: Sequence[float] = (0.0, 0.0, 0.0)
    day: int = 0
    """From whose end on it is known."""
    category: int = 1
    """Index in the vocabulary."""
    start: datetime | None = None
    end: datetime | None = None


def add_items(folder: Path, rows: Sequence[Row]) -> Path:
    """Give a folder a table of items, whose categories are those of the feature `category`."""
    windows = WindowFolder(folder)
    raw = windows.vocabulary(ITEM_ID)["value"].to_pylist()
    index = {item: place + 2 for place, item in enumerate(raw)}
    rows = sorted(rows, key=lambda row: (row.day, index[row.item]))
    write_parquet(folder / ITEMS, table_of(rows, [index[row.item] for row in rows]))
    statistics = windows.statistics
    features = {name: replace(each) for name, each in statistics.features.items()}
    if "category" in features:
        features["category"] = replace(features["category"], of_item=True)
    about = ItemStatistics(
        features=["category"] if features else [], vectors={VECTOR: 3}, availability=True
    )
    statistics = replace(statistics, features=features, items=about)
    write_json(folder / STATISTICS, statistics.as_json())
    return folder


def table_of(rows: Sequence[Row], indices: Sequence[int]) -> pa.Table:
    """Return rows as a file of windows holds them."""
    vectors = [component for row in rows for component in row.vector]
    return pa.table(
        {
            "first_window": pa.array([day(row.day) for row in rows], pa.string()),
            ITEM_ID: pa.array(indices, pa.int32()),
            "category": pa.array([row.category for row in rows], pa.int32()),
            VECTOR: pa.FixedSizeListArray.from_arrays(pa.array(vectors, pa.float32()), 3),
            "available_from": pa.array([row.start for row in rows], TIMESTAMP),
            "available_until": pa.array([row.end for row in rows], TIMESTAMP),
        }
    )
