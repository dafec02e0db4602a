"""The history, and the state that follows from it."""

import re
from dataclasses import replace

import pytest

from dayahead.core.errors import DataError
from dayahead.nightly.history import Entry, History, State


def published(name, window="w"):
    return Entry(kind="published", why="", model=name, window=window, details={"windows": [window]})


def rolled_back(current, previous):
    details = {"withdrawn": current, "reason": "bad"}
    return Entry(kind="rolled back", why="", model=previous, details=details)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ("", "")),
        ([published("a")], ("a", "")),
        ([published("a"), published("b")], ("b", "a")),
        ([published("a"), published("b"), rolled_back("b", "a")], ("a", "b")),
        ([published("a"), published("b"), rolled_back("b", "a"), published("c")], ("c", "a")),
        ([published("a"), published("a")], ("a", "")),
    ],
)
def test_links_follow_from_the_entries(entries, expected):
    assert State(tuple(entries)).published == expected


def test_withdrawn_models_are_those_not_taken_back():
    entries = [published("a"), published("b"), rolled_back("b", "a")]
    assert State(tuple(entries)).withdrawn == {"b": "bad"}
    assert State((*entries, rolled_back("a", "b"))).withdrawn == {}


def test_a_window_refused_first_and_published_later_is_not_refused():
    details = {"windows": ["2", "3"], "refused_windows": ["2"]}
    refused = Entry(kind="refused", why="", window="3", details=details)
    assert State((refused,)).refused_windows == {"2"}
    later = Entry(kind="published", why="", window="4", details={"windows": ["4"]})
    assert State((refused, later)).refused_windows == {"2"}
    again = Entry(kind="published", why="", window="3", details={"windows": ["2", "3"]})
    assert State((refused, again)).refused_windows == set()


def test_entries_read_back_as_written(tmp_path):
    history = History(tmp_path)
    entry = Entry(
        kind="held", why="too low", window="2026-01-01", key="k", model="m",
        metrics={"model": 0.1}, checks=[{"guard": "g", "passed": False, "why": "w"}],
        details={"windows": ["2026-01-01"]},
    )  # fmt: skip
    history.append(published("a"))
    state = history.append(entry)
    assert [replace(each, time="") for each in state.entries] == [published("a"), entry]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", each.time) for each in state.entries)
    assert history.read().entries == state.entries
    assert len(history.path.read_text().splitlines()) == 2


def test_an_action_is_unfinished_until_it_is_finished(tmp_path):
    history = History(tmp_path)
    assert history.unfinished() is None
    history.append(published("a"))
    assert history.unfinished().model == "a"
    history.finish()
    assert history.unfinished() is None
    history.append(Entry(kind="skipped", why="", window="w"))
    assert history.unfinished() is None
    history.append(published("a"))
    assert history.unfinished().model == "a"


@pytest.mark.parametrize("line", ["{", "[]", '{"kind": "held"}', '{"kind": "x", "why": ""}'])
def test_a_damaged_line_is_named(tmp_path, line):
    history = History(tmp_path)
    history.append(published("a"))
    history.path.write_text(history.path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"history\.jsonl: line 2"):
        history.read()


def test_figures_are_those_of_the_same_settings_and_targets():
    def night(window, settings, targets, value, kind="held"):
        details = {"windows": [window], "settings": settings, "targets": targets}
        return Entry(kind=kind, why="", window=window, metrics={"model": value}, details=details)

    nights = night("1", "s", "t", 0.1), night("2", "s", "u", 0.2), night("3", "r", "t", 0.3)
    again = night("1", "s", "t", 0.5, "published")
    refused = Entry(kind="refused", why="", window="4", details={"settings": "s", "targets": "t"})
    assert State((*nights, again, refused)).figures("s", "t") == {"1": 0.5}
