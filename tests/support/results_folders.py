"""Results folders small enough to read in a test."""

import json

import numpy as np
import pyarrow as pa

from dayahead.config.baselines import COMPARED
from dayahead.metrics.tables import (
    WindowRanks,
    baseline_path,
    window_result,
    write_evidence,
    write_ranks,
    write_windows,
)

CUTOFFS = (10, 20)


def window_ranks(ranks, targets=None, session_ids=None, positions=None):
    n = len(ranks)
    return WindowRanks(
        session_ids=pa.chunked_array([session_ids or [f"s{i}" for i in range(n)]], pa.string()),
        positions=None if positions is None else np.array(positions, np.int32),
        targets=np.array(targets or range(2, n + 2), np.int32),
        ranks=np.array(ranks, np.int64),
    )


def result_of(window, ranks, cutoffs=CUTOFFS, train_loss=None, train_metrics=None):
    """The row of windows.csv that belongs to these ranks of last items."""
    return window_result(window, window_ranks(ranks), cutoffs, train_loss, train_metrics or {})


def write_results(folder, ranks_by_window, train_loss=None, train_metrics=None):
    """Write windows.csv, ranks/ of {window: [rank, ...]}, baselines/ and no evidence.

    A baseline has each rank plus 4.
    """
    for window, ranks in ranks_by_window.items():
        write_ranks(folder, window, window_ranks(ranks))
    rows = [
        result_of(window, ranks, train_loss=train_loss, train_metrics=train_metrics)
        for window, ranks in ranks_by_window.items()
    ]
    write_windows(folder / "windows.csv", rows)
    worse = {window: [r and r + 4 for r in ranks] for window, ranks in ranks_by_window.items()}
    write_baselines(folder, [result_of(window, ranks) for window, ranks in worse.items()])
    write_evidence(folder / "evidence.csv", {})
    return folder


def write_baselines(folder, rows):
    """Write the same table of every baseline."""
    for name in COMPARED:
        write_windows(baseline_path(folder, name), rows)


def write_listing(folder, windows, unit="day", length=1):
    """Write windows.json: the last window is open, the others kept."""
    entries = [
        {
            "window": window,
            "start": f"{window}Z",
            "end": f"{window}Z",
            "sessions": 9,
            "events": 30,
            "state": "kept",
            "why": None,
            "roles": {"train": 9, "valid": 4, "test": 5},
            "overrun_events": 1,
        }
        for window in windows
    ]
    entries[-1] |= {"state": "open", "why": "the log <ends> before the window does"}
    steps = {"events_read": 100, "dropped_overrun": 10, "events_kept": 90}
    listing = {"unit": unit, "length": length, "log_end": "x", "sessions_read": 9,
               "sessions_kept": 9, "steps": steps, "windows": entries}  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "windows.json").write_text(json.dumps(listing))
    return folder
