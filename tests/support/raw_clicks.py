"""Clicks of a downloaded log, as the stage download leaves them in data/raw."""

from datetime import UTC, timedelta

import pyarrow as pa

from dayahead.core.columns import TIMESTAMP
from dayahead.core.files import write_parquet
from dayahead.dataset.manifest import EventsFile, RawManifest
from support.window_folders import START


def write_raw_clicks(root, rows, owner="session_id"):
    """Write data/raw with rows of (session or user, item, microseconds since 1970).

    The log is complete until the end of the third day of window folders.
    """
    owners, items, times = zip(*rows, strict=True)
    table = pa.table(
        {
            owner: pa.array(owners, pa.string()),
            "item_id": pa.array(items, pa.int64()),
            "event_time": pa.array(times, pa.int64()).cast(TIMESTAMP),
        }
    )
    write_parquet(root / "data/raw/events-00000.parquet", table)
    part = EventsFile("events-00000.parquet", len(rows), "", "", "")
    end = START.replace(tzinfo=UTC) + timedelta(days=3)
    RawManifest("tiny", end, len(rows), len(rows), {}, (), (part,)).write(root / "data/raw")
