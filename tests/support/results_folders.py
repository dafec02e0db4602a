"""Results folders small enough to read in a test."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from dayahead.aggregate.findings import Folders
from dayahead.config.baselines import COMPARED
from dayahead.config.sections import nested
from dayahead.core.columns import (
    EVENT_TIME,
    ITEM_ID,
    SESSION_ID,
    SESSION_START,
    TIMESTAMP,
    USER_ID,
)
from dayahead.core.files import write_json, write_parquet
from dayahead.dataset.manifest import RawManifest, SourceRecord
from dayahead.outputs.lists import ListRow, add_lists, start_lists
from dayahead.outputs.ranks_by_window import write_baseline_ranks
from dayahead.outputs.tables import (
    WindowRanks,
    baseline_path,
    window_result,
    write_evidence,
    write_ranks,
    write_windows,
)
from dayahead.windows.folder import STATISTICS, vocabulary_path, window_path
from support.window_folders import tiny_statistics, vocabulary_table

CUTOFFS = (10, 20)
DAYS = {f"2019-10-0{day}": [day, 0, 2 * day, 1] for day in range(2, 8)}
"""Ranks of four sessions by window."""
SETTINGS = {
    "dataset": "g1<b>",
    "model.architecture": "gpt2",
    "model.features": ("price", "hour"),
    "evaluation.candidates": "seen",
    "evaluation.split": "test",
    "training.fit_last": True,
    "window.first": None,
}
"""What a report shows of a run's settings."""


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

    A baseline has each rank plus 4. Beside the folder is raw/, with a manifest.
    """
    for window, ranks in ranks_by_window.items():
        write_ranks(folder, window, window_ranks(ranks))
    rows = [
        result_of(window, ranks, train_loss=train_loss, train_metrics=train_metrics)
        for window, ranks in ranks_by_window.items()
    ]
    write_windows(folder / "windows.csv", rows)
    worse = {window: [r and r + 4 for r in ranks] for window, ranks in ranks_by_window.items()}
    write_baselines(folder, [result_of(window, ranks) for window, ranks in worse.items()], worse)
    write_evidence(folder / "evidence.csv", {})
    write_lists(folder, {})
    write_raw_manifest(folder.parent / "raw")
    return folder


def write_run_folders(
    root,
    ranks_by_window=DAYS,
    ends=("2019-10-01", "2019-10-08"),
    train_loss=None,
    train_metrics=None,
    **listing,
):
    """Write what `aggregate` reads of a project; `ends` are the windows before and after."""
    windows, raw = root / "data" / "windows", root / "data" / "raw"
    results = write_results(root / "results", ranks_by_window, train_loss, train_metrics)
    write_listing(windows, [ends[0], *ranks_by_window, ends[1]], **listing)
    write_raw_manifest(raw)
    return Folders(results, windows, raw)


def write_lists(folder, figures_by_window):
    """Write lists.csv of lists over ten items: the figures of each window by their names."""
    start_lists(folder, next(iter(figures_by_window.values()), ()))
    for window, figures in figures_by_window.items():
        add_lists(folder, ListRow(window, 4, 10, figures))


def write_baselines(folder, rows, ranks_by_window):
    """Write the same tables of every baseline."""
    ranks = {window: np.array(ranks) for window, ranks in ranks_by_window.items()}
    for name in COMPARED:
        write_windows(baseline_path(folder, name), rows)
        write_baseline_ranks(folder, name, ranks)


def write_raw_manifest(folder):
    """Write manifest.json of a log with one source file."""
    file = SourceRecord("https://x.org/log.csv", "log.csv", 1234, "ab" * 32, 100, 100, {})
    log_end = datetime(2019, 10, 9, tzinfo=UTC)
    RawManifest("g1", log_end, 100, 100, {}, (file,), ()).write(folder)


def write_listing(folder, windows, unit="day", length=1, sessions=None):
    """Write windows.json and the files of the windows: the last window is open, the others kept.

    Each window has the same sessions, by id, which train and test: of n targets session i ends with
    the catalogue index 2 + i. All items are new in the first window.
    """
    sessions = sessions or {f"s{i}": [2] * (i + 1) + [2 + i] for i in range(4)}
    for window in windows[:-1]:
        write_sessions(folder, unit, window, sessions)
    values = pa.array(range(102, 112))
    first = datetime.fromisoformat(windows[0])
    vocabulary = vocabulary_table(values, [windows[0]] * len(values), first)
    write_parquet(vocabulary_path(folder, ITEM_ID), vocabulary)
    write_json(folder / STATISTICS, tiny_statistics().as_json())
    entries = [
        {
            "window": window,
            "start": f"{datetime.fromisoformat(window).isoformat()}Z",
            "end": f"{datetime.fromisoformat(window).isoformat()}Z",
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
    (folder / "windows.json").write_text(json.dumps(listing))
    return folder


def write_sessions(folder, unit, window, sessions, roles=("train", "valid", "test")):
    """Write a window's files: the items of each session by its id."""
    start = datetime.fromisoformat(window).replace(tzinfo=UTC)
    columns = {
        SESSION_ID: pa.array(list(sessions), pa.string()),
        USER_ID: pa.array([f"u{n}" for n in range(len(sessions))], pa.string()),
        SESSION_START: pa.array([start] * len(sessions), TIMESTAMP),
        ITEM_ID: pa.array(list(sessions.values()), pa.list_(pa.int32())),
        EVENT_TIME: pa.array(
            [[start] * len(items) for items in sessions.values()], pa.list_(TIMESTAMP)
        ),
    }
    for role in roles:
        write_parquet(window_path(folder, unit, window, role), pa.table(columns))


def write_run(folder, ranks_by_window, settings):
    """Write the results/ of a project, and its dvc.lock with settings by name, if any."""
    folder = Path(folder)
    write_results(folder / "results", ranks_by_window)
    if settings is not None:
        stage = {"cmd": "x", "params": {"params.yaml": nested(settings)}}
        (folder / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {"train": stage}}))
