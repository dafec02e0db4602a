"""Night after night with a table of items: as in one run, or an error about late rows."""

import logging
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dayahead.core.columns import TIMESTAMP
from dayahead.core.files import read_json
from dayahead.preprocess.stage import LateRowsError
from support.builders import (
    events,
    instant,
    preprocessed,
    random_log,
    session,
    window_config,
    write_log,
)
from support.item_tables import item_dataset, random_items, table_of
from support.window_folders import bytes_in

DAYS = 5
LOG = events(
    [row for day in (1, 2, 3) for row in session(f"s{day}", [1, 2], f"2026-01-0{day} 09:00")]
)
DATASET = item_dataset(available_until=None, vectors=None,
                       features={"brand": {"kind": "categorical", "column": "b"}})  # fmt: skip
ROWS = [
    {"item_id": 1, "event_time": "2025-12-01", "brand": "a"},
    {"item_id": 2, "event_time": "2026-01-01 09:30", "brand": "b"},
    {"item_id": 3, "event_time": "2026-01-02 09:30", "brand": "c"},
]


def until(table, end):
    """Rows before a time."""
    return table.filter(pc.less(table["event_time"], pa.scalar(instant(end), TIMESTAMP)))


def files_until(table, ends):
    """A file of each night: rows since the end before, numbered from 0."""
    files = []
    for begin, end in pairwise(["2025-01-01", *ends]):
        is_later = pc.greater_equal(table["event_time"], pa.scalar(instant(begin), TIMESTAMP))
        rows = until(table.filter(is_later), end)
        numbers = pa.array(range(len(rows)), pa.int64())
        files.append(rows.set_column(rows.column_names.index("row"), "row", numbers))
    return files


def days(n):
    """The ends of the first days of 2026."""
    return [f"2026-01-0{day + 2}" for day in range(n)]


def merged(tables):
    """One file of all rows, as a shop that exports its whole table each night has it."""
    return [table_of([row for table in tables for row in table.to_pylist()])]


@pytest.fixture
def brands(run):
    """Run the log until a day, with rows of the table, in a project that all runs share."""

    def brands(n_days, rows, project="shared", **options):
        names = ["item_id", "event_time", "row", "brand"]
        dataset = options.pop("dataset", DATASET)
        if dataset.items.time is None:
            names.remove("event_time")
        ends = days(n_days)
        return run(files_until(LOG, ends), dataset, items=[table_of(rows).select(names)],
                   log_end=ends[-1], project=project, **options)  # fmt: skip

    return brands


@pytest.mark.long
@pytest.mark.parametrize("as_one_file", [True, False])
@pytest.mark.parametrize(
    "window",
    [
        {},
        *(
            pytest.param(window, marks=pytest.mark.slow)
            for window in ({"grace": 300}, {"unit": "hour", "min_sessions": 2})
        ),
    ],
)
def test_night_after_night_equals_one_run(run, window, as_one_file, caplog):
    caplog.set_level(logging.INFO)
    log, tables = random_log(8, DAYS), random_items(8, DAYS)
    ends = days(DAYS)
    files = files_until(log, ends)
    fresh = run(files, item_dataset(), items=merged(tables), log_end=ends[-1], **window)
    caplog.clear()
    for n_days in (2, 3, DAYS):
        known = tables[: n_days + 1]
        grown = run(files[:n_days], item_dataset(), log_end=ends[n_days - 1], project="shared",
                    items=merged(known) if as_one_file else known, **window)  # fmt: skip
    assert caplog.text.count("preprocess: 0 closed windows reused") == 1
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)


any_nights = given(
    seed=st.integers(0, 999),
    # From the first hour on at which a window is over, whatever its grace.
    cuts=st.sets(st.integers(26, 24 * DAYS), min_size=1, max_size=2),
    window=st.sampled_from([{}, {"unit": "hour"}, {"grace": 60}, {"overrun": "keep"}]),
)


def times(n):
    # Not shrunk: it takes minutes.
    return settings(max_examples=n, phases=[Phase.explicit, Phase.reuse, Phase.generate],
                    suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip


@pytest.mark.long
@any_nights
@times(2)
def test_any_cut_of_log_and_table_equals_one_run(tmp_path_factory, monkeypatch, **drawn):
    check_nights(tmp_path_factory, monkeypatch, **drawn)


@pytest.mark.slow
@any_nights
@times(40)
def test_many_cuts_of_log_and_table_equal_one_run(tmp_path_factory, monkeypatch, **drawn):
    check_nights(tmp_path_factory, monkeypatch, **drawn)


def check_nights(tmp_path_factory, monkeypatch, seed, cuts, window):
    """The log is exported at some hours, with the rows of the table until then."""
    log, rows = random_log(seed, DAYS), merged(random_items(seed, DAYS))[0]
    hours = [*sorted(cuts), 24 * DAYS + 1]
    ends = [f"2026-01-{1 + hour // 24:02d} {hour % 24:02d}:00" for hour in hours]
    contents = []
    for nights in (range(1, len(ends) + 1), [len(ends)]):
        folder = tmp_path_factory.mktemp("nights")
        monkeypatch.setenv("DVC_ROOT", str(folder / "project"))
        for n in nights:
            items = [until(rows, ends[n - 1])]
            write_log(folder / "raw", files_until(log, ends[:n]), log_end=ends[n - 1], items=items)
            preprocessed(folder, item_dataset(), window_config(**window))
        contents.append(bytes_in(folder / "windows"))
    assert contents[0] == contents[1]


@pytest.mark.long
def test_a_row_of_a_window_that_is_written_is_late(brands):
    brands(2, ROWS)
    late = {"item_id": 5, "event_time": "2026-01-01 12:00", "brand": "d"}
    with pytest.raises(LateRowsError, match=r"the table of items differs for windows that are "
                       r"written already, up to 2026-01-02: 1 rows were added or removed, such as "
                       r"item 5\. .*preprocess\.rebuild=true"):  # fmt: skip
        brands(3, [*ROWS, late])
    rebuilt = brands(3, [*ROWS, late], rebuild=True)
    fresh = brands(3, [*ROWS, late], project=None)
    assert bytes_in(rebuilt.folder) == bytes_in(fresh.folder)


def test_a_row_that_is_changed_or_gone_is_late(brands):
    brands(2, ROWS)
    with pytest.raises(LateRowsError, match=r"up to 2026-01-02: rows were changed\. Give new rows"):
        brands(3, [{**ROWS[0], "brand": "z"}, *ROWS[1:]])
    with pytest.raises(LateRowsError, match=r"1 rows were added or removed, such as item 2\."):
        brands(3, [ROWS[0], ROWS[2]])


def test_what_changes_nothing_or_comes_later_is_not_late(brands):
    brands(2, ROWS)
    again = {**ROWS[1], "event_time": "2026-01-02 10:00"}
    later = {"item_id": 5, "event_time": "2026-01-03", "brand": "d"}
    grown = brands(3, [later, again, *ROWS])
    assert grown.items["first_window"].to_pylist()[-1] == "2026-01-03"
    assert bytes_in(grown.folder) == bytes_in(brands(3, [*ROWS, later], project=None).folder)


def test_vectors_of_another_length_are_late(run):
    dataset = item_dataset(available_until=None, features={},
                           vectors={"image": {"kind": "vector", "column": "p"}})  # fmt: skip
    row = {"item_id": 1, "event_time": "2026-01-03", "image": [1.0, 2.0]}
    names = ["item_id", "event_time", "row", "image"]

    def night(n_days, row):
        files, tables = files_until(LOG, days(n_days)), [table_of([row]).select(names)]
        run(files, dataset, items=tables, log_end=days(n_days)[-1], project="shared")

    night(2, row)
    with pytest.raises(LateRowsError, match="table of items differs"):
        night(3, {**row, "image": [1.0, 2.0, 3.0]})


@pytest.mark.long
def test_without_times_a_changed_table_is_another_run(brands, tmp_path):
    untimed = item_dataset(available_until=None, vectors=None, time=None,
                           features={"brand": {"kind": "categorical", "column": "b"}})  # fmt: skip
    entries = tmp_path / "shared" / ".dayahead" / "windows"
    brands(2, ROWS[:2], dataset=untimed)
    brands(3, ROWS[:2], dataset=untimed)
    assert len({len(read_json(path)["items"]) for path in entries.glob("*/state.json")}) == 1
    grown = brands(3, ROWS, dataset=untimed)
    fresh = brands(3, ROWS, dataset=untimed, project=None)
    assert bytes_in(grown.folder) == bytes_in(fresh.folder)
    assert grown.vocabulary("brand")["value"].to_pylist() == ["a", "b", "c"]


def test_a_click_of_a_listed_item_gives_it_its_first_time(brands):
    rows = [{"item_id": 2, "event_time": "2025-01-01", "brand": "a"},
            {"item_id": 7, "event_time": "2025-01-01", "brand": "a"}]  # fmt: skip
    first = brands(1, rows)
    assert first.vocabulary("item_id")["events"].to_pylist() == [1, 1, 0]
    index = {n: i for i, n in enumerate(first.vocabulary("item_id")["value"].to_pylist())}
    assert index == {1: 0, 2: 1, 7: 2}
