"""Phases nest, add up to the whole, and cost nothing where no stopwatch runs."""

import threading
import time

import pytest

from dayahead.core.errors import DataError
from dayahead.core.phases import (
    Stopwatch,
    add_rows,
    idle_seconds,
    in_phase,
    note_peak,
    peak_memory,
    phase,
    read_phases,
    recorded,
    steps,
    write_phases,
)
from dayahead.core.project import stage_lock


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets; the processor's runs half as fast."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: now[0] / 2)
    return now


def wait(clock, seconds):
    clock[0] += seconds


def fit(clock):
    """A whole of 16 s."""
    wait(clock, 1)
    for seconds in (2, 3):
        with phase("fit"):
            wait(clock, seconds)
            with phase("loss"):
                wait(clock, 5)


def test_own_times_add_up_to_the_whole(clock):
    watch = Stopwatch(counts_cpu=True)
    with watch.running():
        fit(clock)
    rows = {row.phase: row for row in watch.rows()}
    assert list(rows) == ["total", "fit", "fit/loss"]
    assert [row.seconds for row in rows.values()] == [16, 15, 10]
    assert [row.own_seconds for row in rows.values()] == [1, 5, 10]
    assert [row.cpu_seconds for row in rows.values()] == [8, 7.5, 5]
    assert [row.calls for row in rows.values()] == [1, 2, 2]
    assert [row.depth for row in rows.values()] == [0, 1, 2]
    assert idle_seconds(watch.rows()) == 8
    assert rows["total"].peak_mib >= rows["fit"].peak_mib > 0
    assert rows["fit/loss"].peak_mib == 0


def test_a_phase_ends_with_an_exception(clock):
    watch = Stopwatch()
    with watch.running():
        with pytest.raises(ValueError, match="lost"), phase("fit"), phase("loss"):
            raise ValueError("lost")
        with phase("evaluate"):
            wait(clock, 1)
    assert [row.phase for row in watch.rows()] == ["total", "fit", "fit/loss", "evaluate"]


def test_time_that_is_removed_leaves_the_phases_around_it(clock):
    watch = Stopwatch(counts_cpu=True)
    with watch.running():
        fit(clock)
        with phase("fit"), phase("profiler"):
            wait(clock, 100)
    assert watch.root.remove("profiler") == (100, 50)
    rows = {row.phase: (row.seconds, row.own_seconds, row.cpu_seconds) for row in watch.rows()}
    assert rows == {"total": (16, 1, 8), "fit": (15, 5, 7.5), "fit/loss": (10, 10, 5)}


def test_nothing_is_recorded_where_no_stopwatch_runs():
    assert phase("fit") is phase("loss")
    add_rows([])
    note_peak(1)


def test_other_threads_do_not_count():
    watch = Stopwatch()
    with watch.running():
        thread = threading.Thread(target=in_phase("fit")(lambda: None))
        thread.start()
        thread.join()
    assert [row.phase for row in watch.rows()] == ["total"]


def test_calls_and_steps_are_phases(clock):
    watch = Stopwatch()

    def items():
        for n in range(3):
            wait(clock, 2)
            yield n

    with watch.running():
        found = in_phase("fit")(lambda n: wait(clock, n))
        for n in steps(items()):
            found(n)
    rows = {row.phase: (row.seconds, row.calls) for row in watch.rows()[1:]}
    # The last call of `data` finds the end.
    assert rows == {"data": (6, 4), "step": (3, 3), "step/fit": (3, 3)}


def test_a_table_of_another_process_is_put_in_place(clock, tmp_path):
    path = tmp_path / "phases.csv"
    with recorded(path):
        fit(clock)
    assert [row.phase for row in read_phases(path)] == ["total", "fit", "fit/loss"]
    watch = Stopwatch()
    with watch.running(), phase("protocol"):
        with recorded(tmp_path / "none.csv"):
            fit(clock)
        wait(clock, 16)
        add_rows(read_phases(path))
    rows = {row.phase: (row.seconds, row.own_seconds) for row in watch.rows()}
    assert rows["protocol"] == (32, 2)
    assert rows["protocol/fit"] == (30, 10)
    assert not (tmp_path / "none.csv").exists()


def test_memory_of_workers_counts_for_the_outer_phase():
    watch = Stopwatch()
    much = 2 * peak_memory() / 2**20
    with watch.running(), phase("parts"), phase("gather"):
        note_peak(much)
    assert [row.peak_mib for row in watch.rows()] == [much, much, 0]


def test_a_table_reads_back_as_it_was_written(clock, tmp_path):
    watch = Stopwatch(counts_cpu=True)
    with watch.running():
        fit(clock)
    write_phases(tmp_path / "a.csv", watch.rows())
    write_phases(tmp_path / "b.csv", read_phases(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert [row.phase for row in read_phases(tmp_path / "a.csv")] == ["total", "fit", "fit/loss"]


@pytest.mark.parametrize("text", [None, "phase,seconds\na,1\n", "a\n1\n"])
def test_a_damaged_table_is_named(tmp_path, text):
    path = tmp_path / "phases.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=r"phases\.csv: expected a table of phases"):
        read_phases(path)


def test_a_stage_leaves_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with stage_lock("train"), phase("fit"):
        pass
    rows = read_phases(tmp_path / "results" / "phases" / "train.csv")
    assert [row.phase for row in rows] == ["total", "fit"]
    assert rows[0].seconds >= rows[1].seconds
    assert rows[1].calls == 1
