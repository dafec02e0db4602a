"""Tables of a running study are complete after every window."""

import csv

import numpy as np
import pyarrow as pa

from dayahead.outputs.tables import read_windows
from dayahead.train.results import EvaluatedWindow, ResultsFolder, Timing
from support.results_folders import window_ranks


def add(results, window, predictions=None):
    ranks, timing = window_ranks([1, 0, 7]), Timing(window, 1.0, 2.0, 3.0, 4.0, 5)
    none = np.zeros(0, np.int32)
    evaluated = EvaluatedWindow(window, ranks, none, 1.5, timing, predictions, predictions)
    evaluated.write_lists(results.folder)
    results.add(evaluated)


def read_timing(folder):
    with (folder / "timing.csv").open() as file:
        return list(csv.DictReader(file))


def test_timings_are_in_a_file_of_their_own(tmp_path):
    add(ResultsFolder(tmp_path, [5]), "2026-01-02")
    [row] = read_windows(tmp_path / "windows.csv", [5])
    assert (row.n_sessions, row.train_loss, row.metrics["recall_at_5"]) == (3, 1.5, 1 / 3)
    assert "seconds" not in (tmp_path / "windows.csv").read_text()
    assert read_timing(tmp_path) == [
        {
            "window": "2026-01-02",
            "fit_seconds": "1.0",
            "fit_sessions_per_second": "2.0",
            "evaluate_seconds": "3.0",
            "evaluate_sessions_per_second": "4.0",
            "state_bytes": "5",
        }
    ]


def test_clear_removes_an_earlier_run(tmp_path):
    add(ResultsFolder(tmp_path, [5]), "2026-01-02", pa.table({"items": [[1]]}))
    for name in ("predictions", "attention"):
        assert (tmp_path / name / "2026-01-02.parquet").exists()
    results = ResultsFolder(tmp_path, [5])
    results.clear()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert not (tmp_path / "windows.csv").exists()
    assert not (tmp_path / "timing.csv").exists()
    results.clear()


def test_folders_that_may_stay_empty_have_a_readme(tmp_path):
    """DVC warns of empty outputs, and fails if one is missing."""
    ResultsFolder(tmp_path, [5]).clear()
    for name in ("predictions", "attention"):
        assert "session_id" in (tmp_path / name / "README.txt").read_text()


def test_a_window_is_added_to_the_tables_without_writing_the_others_again(tmp_path):
    results = ResultsFolder(tmp_path, [5])
    add(results, "2026-01-02")
    tables = [tmp_path / "windows.csv", tmp_path / "timing.csv"]
    before = [(table.stat().st_ino, table.read_text()) for table in tables]
    add(results, "2026-01-03")
    for table, (inode, text) in zip(tables, before, strict=True):
        assert table.stat().st_ino == inode
        assert table.read_text().startswith(text)
        assert table.read_text().count("\n") == 3


def test_an_evaluated_window_is_read_as_it_was_written(tmp_path):
    lists = pa.table({"items": [["a", "b"]], "scores": [[0.5, 0.25]]})
    timing, train = Timing("2026-01-02T03", 1.0, 2.0, 3.0, 4.0, 5), np.array([1, 0], np.int32)
    ranks = window_ranks([1, 0, 7])
    written = EvaluatedWindow("2026-01-02T03", ranks, train, 1 / 3, timing, lists, None)
    written.write(tmp_path)
    read = EvaluatedWindow.read(tmp_path, written.window)
    assert (read.window, read.train_loss, read.timing) == ("2026-01-02T03", 1 / 3, timing)
    assert read.train_ranks.tolist() == [1, 0]
    assert read.ranks.ranks.tolist() == [1, 0, 7]
    assert (tmp_path / "predictions" / "2026-01-02T03.parquet").exists()
