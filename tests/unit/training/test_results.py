"""Tables of a run going on, whole after every window."""

import csv

import numpy as np
import pyarrow as pa

from dayahead.evaluation.tables import WindowRanks, read_ranks, read_windows, window_result
from dayahead.training.results import ResultsFolder, Timing


def add(results, window):
    ranks = np.array([1, 0, 7])
    ids = pa.chunked_array([["a", "b", "c"]])
    results.add(
        WindowRanks(ids, np.array([2, 3, 4], np.int32), ranks),
        window_result(window, ranks, [5], 1.5),
        Timing(window, 1.0, 2.0, 3.0, 4.0),
    )


def timed(folder):
    with (folder / "timing.csv").open() as file:
        return list(csv.DictReader(file))


def test_tables_hold_every_window_so_far(tmp_path):
    results = ResultsFolder(tmp_path)
    for n_windows, window in enumerate(["2026-01-02", "2026-01-03"], start=1):
        add(results, window)
        assert len(read_windows(tmp_path / "windows.csv", [5])) == len(timed(tmp_path)) == n_windows
        assert read_ranks(tmp_path, window).ranks.tolist() == [1, 0, 7]


def test_clock_times_stay_out_of_windows_csv(tmp_path):
    add(ResultsFolder(tmp_path), "2026-01-02")
    assert "seconds" not in (tmp_path / "windows.csv").read_text()
    assert timed(tmp_path) == [
        {
            "window": "2026-01-02",
            "fit_seconds": "1.0",
            "fit_sessions_per_second": "2.0",
            "measure_seconds": "3.0",
            "measure_sessions_per_second": "4.0",
        }
    ]


def test_clearing_takes_the_run_before_away(tmp_path):
    add(ResultsFolder(tmp_path), "2026-01-02")
    results = ResultsFolder(tmp_path)
    results.clear()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert not (tmp_path / "windows.csv").exists()
    assert not (tmp_path / "timing.csv").exists()
    results.clear()
