"""Random tables of items, and what they mean in plain Python."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from dayahead.core.columns import TIMESTAMP
from dayahead.dataset.schema import DatasetConfig
from support.builders import dataset_config, instant

ITEMS = {
    "source": {"urls": ["unused.csv"]},
    "item_id": {"column": "item_id", "type": "int"},
    "time": {"column": "event_time"},
    "available_until": "gone",
    "features": {
        "brand": {"kind": "categorical", "column": "brand"},
        "size": {"kind": "categorical", "column": "size", "type": "int"},
        "weight": {"kind": "number", "column": "weight"},
    },
    "vectors": {
        "words": {"kind": "text", "columns": ["title"], "dimensions": 4},
        "image": {"kind": "vector", "column": "pixels"},
    },
}
SCHEMA = pa.schema(
    [
        ("item_id", pa.int64()),
        ("event_time", TIMESTAMP),
        ("row", pa.int64()),
        ("brand", pa.string()),
        ("size", pa.int64()),
        ("weight", pa.float64()),
        ("available_until", TIMESTAMP),
        ("words", pa.string()),
        ("image", pa.list_(pa.float32())),
    ]
)
WORDS = ("red shoe", "blue shoe", "red hat", "green hat with a feather", "a", None)


def item_dataset(
    *, log_features: Mapping[str, Any] | None = None, past_max_length: int = 0, **changes: Any
) -> DatasetConfig:
    """A data set of `random_log` with the table of items above; keywords change the section."""
    items = {name: value for name, value in {**ITEMS, **changes}.items() if value is not None}
    columns = {"user_id": "user_id"} if past_max_length else {}
    return dataset_config(
        columns=columns, features=log_features, items=items, past_max_length=past_max_length
    )


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of a source file as data/raw has them; times may be text, what is left out is null."""
    given = [
        {
            name: instant(value) if isinstance(value, str) and SCHEMA.field(name).type == TIMESTAMP
            else value
            for name, value in {**row, "row": number}.items()
        }
        for number, row in enumerate(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(given, SCHEMA)


def random_items(seed: int, days: int, n_items: int = 25) -> list[pa.Table]:
    """A table by day: careless rows, some of one time, some like the one before."""
    tables = []
    for day in range(-1, days):
        random = np.random.default_rng([seed, day + 1])
        midnight = instant("2026-01-01").timestamp() + 86_400 * day
        rows = []
        for _ in range(int(random.integers(4, 14))):
            second = midnight + int(random.choice([0, 3_600, 50_000, random.integers(86_400)]))
            rows.append(
                {
                    "item_id": int(random.integers(max(day, 0), max(day, 0) + n_items)),
                    "event_time": datetime.fromtimestamp(second, UTC),
                    "brand": random.choice(["acme", "bolt", f"new{day}", None]),
                    "size": [None, 2**53 + 1, int(random.integers(3))][int(random.integers(3))],
                    "weight": [None, float(random.integers(9))][int(random.integers(2))],
                    "available_until": [None, instant("2026-02-01")][int(random.integers(2))],
                    "words": random.choice(WORDS),
                    "image": [None, random.integers(-3, 3, 2).tolist()][int(random.integers(2))],
                }
            )
        tables.append(table_of(rows))
    return tables


def held(rows: Sequence[dict[str, Any]], item: int, moment: datetime) -> dict[str, Any] | None:
    """Return the row of an item that holds at a moment: the newest, of those the last."""
    found = [row for row in rows if row["item_id"] == item and row["event_time"] <= moment]
    order = {n: (row["event_time"], n) for n, row in enumerate(found)}
    return found[max(order, key=lambda n: order[n])] if found else None
