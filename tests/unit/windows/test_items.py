"""What is known of items as of a window."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.windows.folder import WindowFolder
from dayahead.windows.items import ItemTable
from support.listed_items import VECTOR, Row, add_items, table_of
from support.window_folders import START, day, write_window_folder

A, B, C = 2, 3, 4
X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
HOUR = timedelta(hours=1)


@pytest.fixture
def folder(tmp_path):
    write_window_folder(tmp_path, [[[1, 2]], [[1, 2]], [[1, 2]]], features=True, listed={1: [7]})
    rows = [Row(1, X, category=2), Row(1, Y, day=1, category=3), Row(7, Y, day=1, start=START)]
    return WindowFolder(add_items(tmp_path, rows))


def test_the_newest_row_of_each_item_is_known_after_its_window(folder):
    first, second, third = map(folder.items_at, folder.windows)
    assert first.items.tolist() == [A]
    assert first.values("category", 5).tolist() == [0, 0, 2, 0, 0]
    assert second.items.tolist() == third.items.tolist() == [A, C]
    assert second.values("category", 5).tolist() == [0, 0, 3, 0, 1]
    assert second.vectors(VECTOR, 5).tolist() == [[0] * 3, [0] * 3, [*Y], [0] * 3, [*Y]]
    assert second.is_listed(4).tolist() == [False, False, True, False]


def test_rows_between_windows_and_the_first_ones_of_items(folder):
    first, second, third = folder.windows
    pairs = [(None, first), (first, second), (second, third), (None, second)]
    assert [folder.items_between(*pair).num_rows for pair in pairs] == [1, 2, 0, 3]
    assert folder.first_items.values("category", 5).tolist() == [0, 0, 2, 0, 1]


def test_a_data_set_without_a_table_knows_nothing_of_items(tmp_path):
    folder = WindowFolder(write_window_folder(tmp_path, [[[1, 2]]]))
    [window] = folder.windows
    assert folder.items is folder.first_items is folder.items_at(window) is None
    assert folder.items_between(None, window) is None


def test_items_are_withdrawn_from_their_end_on():
    rows = [Row(1, start=START + HOUR), Row(2, end=START + HOUR), Row(3)]
    table = ItemTable(table_of(rows, [A, B, C]))
    end = int((START + HOUR).timestamp()) * 1_000_000
    assert table.withdrawn(end - 1) is None
    assert table.withdrawn(end).tolist() == [False, False, False, True, False]
    without = ItemTable(table.rows.drop(["available_from", "available_until"]))
    assert without.withdrawn(end) is None


def test_items_are_available_from_a_time_and_until_another():
    rows = [Row(1, start=START), Row(2, end=START + HOUR), Row(3)]
    table = ItemTable(table_of(rows, [A, B, C]))
    micros = int(START.timestamp()) * 1_000_000
    found = {
        n: table.is_available(np.array([A, B, C, 9]), micros + n).tolist()
        for n in (-1, 0, 3_600_000_000 - 1, 3_600_000_000)
    }
    assert found == {
        -1: [False, True, True, True],
        0: [True, True, True, True],
        3_600_000_000 - 1: [True, True, True, True],
        3_600_000_000: [True, False, True, True],
    }


def test_without_such_columns_items_are_always_available():
    table = ItemTable(table_of([Row(1)], [A]).drop(["available_from", "available_until"]))
    assert table.availability(np.array([A])) is None
    assert table.is_available(np.array([A, B]), 0).all()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(2, 4)), max_size=12))
def test_as_of_a_window_agrees_with_a_loop(tmp_path_factory, drawn):
    newest = {(number, item): value for number, item, value in drawn}
    rows = [Row(item, day=number, category=value) for (number, item), value in newest.items()]
    path = tmp_path_factory.mktemp("windows")
    days = [[[1, 2, 3, 4, 5]]] * 3
    folder = WindowFolder(add_items(write_window_folder(path, days, features=True), rows))
    for window in folder.windows:
        known = {}
        for number in range(window.position + 1):
            known |= {item + 1: v for (n, item), v in newest.items() if n == number}
        table = folder.items_at(window)
        found = dict(zip(table.items.tolist(), table.rows["category"].to_pylist(), strict=True))
        assert (window.name, found) == (day(window.position), known)
