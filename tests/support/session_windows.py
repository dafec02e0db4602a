"""Sessions by window, as preprocess writes them and as the row-by-row oracle expects them."""

from datetime import timedelta

import pyarrow as pa

from dayahead.config.windows import WindowConfig
from dayahead.dataset.schema import DatasetConfig
from dayahead.windows.folder import WindowFolder
from support.session_oracle import expected_sessions, window_of

Windows = dict[str, dict[str, list[int | str]]]
"""Raw items by window and session."""


def written_windows(store: WindowFolder) -> Windows:
    """What was written, for any role; the account of all events must hold."""
    steps = dict(store.manifest.steps)
    assert steps.pop("events_read") == sum(steps.values())
    values = dict(zip(*store.vocabulary("item_id").select(["index", "value"]).to_pydict().values(),
                      strict=True))  # fmt: skip
    return {
        window.name: {
            row["session_id"]: [values[index] for index in row["item_id"]]
            for row in store.read(window, "all", ["session_id", "item_id"]).to_pylist()
        }
        for window in store.windows
    }


def closed_windows(table: pa.Table, dataset: DatasetConfig, window: WindowConfig) -> Windows:
    """What the oracle expects of the windows that end before the log does."""
    windows, _ = expected_sessions(table, dataset, window)
    log_end = max(table["event_time"].to_pylist())
    wanted = {}
    for name, sessions in windows.items():
        start = min(found["start"] for found in sessions.values())
        if window_of(start, window)[1] + timedelta(minutes=window.grace) <= log_end:
            wanted[name] = {
                session_id: [row["item_id"] for row in found["events"]]
                for session_id, found in sessions.items()
            }
    return wanted
