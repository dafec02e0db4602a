"""Example sessions: what is hidden, found and known, by raw id or by title."""

import json

import pytest

from dayahead.aggregate.shown_sessions import item_names, shown_sessions
from dayahead.core.columns import ROLES
from dayahead.core.errors import DataError
from dayahead.outputs.examples import Example
from dayahead.windows.folder import WindowFolder
from support.live_windows import replaced, rewrite
from support.results_folders import window_ranks
from support.window_folders import day, write_window_folder

LONG = [[9, 1, 2, 3, 4, 5, 6, 7, 8], [3, 4]]
"""Sessions of raw ids; catalogue indices follow them in order: 9 is 2, 1 is 3 ..."""
IDS = ["0-000000", "0-000001"]


def test_a_session_is_shown_with_its_target_and_what_was_recommended(tmp_path):
    folder = WindowFolder(write_window_folder(tmp_path, [LONG]))
    ranks = window_ranks([3, 0], session_ids=IDS)
    examples = [Example(row=0, recommended=[9, 10]), Example(row=1, recommended=[5])]
    first, second = shown_sessions(folder, folder.windows[0], "train", ranks, examples)
    assert (first.n_hidden, first.rank) == (2, 3)
    assert [item.name for item in first.items] == ["2", "3", "4", "5", "6", "7"]
    assert (first.target.name, first.target.is_target) == ("8", True)
    assert [(i.name, i.is_target, i.is_known) for i in first.recommended] == [
        ("7", False, True),
        ("8", True, False),
    ]
    assert (second.n_hidden, second.rank) == (0, 0)
    assert [(i.name, i.is_known) for i in second.recommended] == [("3", True)]


def test_with_all_positions_the_rank_is_that_of_the_last_item(tmp_path):
    folder = WindowFolder(write_window_folder(tmp_path, [[[1, 2, 3], [4, 5]]]))
    ranks = window_ranks([7, 8, 9], session_ids=[IDS[0], *IDS], positions=[1, 2, 1])
    examples = [Example(row=0, recommended=[2]), Example(row=1, recommended=[2])]
    shown = shown_sessions(folder, folder.windows[0], "train", ranks, examples)
    assert [each.rank for each in shown] == [8, 9]


@pytest.mark.parametrize(("row", "item"), [(2, 2), (0, 11), (0, -1)])
def test_an_example_of_no_session_or_with_no_item_of_the_catalogue_is_refused(tmp_path, row, item):
    folder = WindowFolder(write_window_folder(tmp_path, [LONG]))  # of 9 items, 2 to 10
    examples = [Example(row=row, recommended=[10, item])]
    ranks = window_ranks([3, 0], session_ids=IDS)
    with pytest.raises(
        DataError, match=r"^results/examples\.json: expected .*`dvc repro -f train`"
    ):
        shown_sessions(folder, folder.windows[0], "train", ranks, examples)


def test_what_comes_after_a_target_is_not_shown(tmp_path):
    """Only the second session has a target of a type that is predicted: its second item."""
    folder = WindowFolder(write_window_folder(tmp_path, [[[1, 2, 3], [4, 5, 6]]]))
    ranks = window_ranks([7], session_ids=IDS[1:], positions=[1])
    examples = [Example(row=1, recommended=[6, 7])]
    [shown] = shown_sessions(folder, folder.windows[0], "train", ranks, examples)
    assert ([item.name for item in shown.items], shown.target.name, shown.rank) == (["4"], "5", 7)
    assert [(i.name, i.is_target) for i in shown.recommended] == [("5", True), ("6", False)]
    with pytest.raises(DataError, match="expected rows of 1 sessions"):
        shown_sessions(folder, folder.windows[0], "train", ranks, [Example(0, [6])])


@pytest.fixture
def titled(tmp_path, monkeypatch):
    """Two windows of items whose titles are their categories, and the names of windows read."""
    write_window_folder(tmp_path, [[[4, 5]], [[6, 4]]], features=True)  # category: id modulo 3
    path = tmp_path / "statistics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"title": "category"}))
    folder, read, names = WindowFolder(tmp_path), WindowFolder.read, []

    def recorded(self, window, *about):
        names.append(window.name)
        return read(self, window, *about)

    monkeypatch.setattr(WindowFolder, "read", recorded)
    return folder, names


def test_items_have_titles_where_a_feature_holds_them(titled):
    folder, read = titled
    names = item_names(folder, folder.windows[1], [1, 2, 3, 4])
    assert names == {1: "?", 2: "1", 3: "2", 4: "0"}
    assert read == [day(1), day(0)]
    assert item_names(folder, folder.windows[0], [4]) == {4: "6"}  # no earlier window has it


def test_no_window_is_read_for_reserved_indices_or_before_the_newest_with_the_item(titled):
    folder, read = titled
    assert item_names(folder, folder.windows[1], [0, 1]) == {0: "?", 1: "?"}
    assert read == []
    for role in ROLES:
        rewrite(
            folder.path(folder.windows[1], role),
            lambda table: replaced(table, "category", [[1, 1]] * len(table)),
        )
    assert item_names(folder, folder.windows[1], [2]) == {2: "4"}
    assert read == [day(1)]
