"""The history, and the state that follows from it."""

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


def refusing(window, *refused, **details):
    details = {"windows": [window], "refused_windows": list(refused), **details}
    return Entry(kind="refused", why="", window=window, details=details)


def test_readmitted_windows_are_refused_no_more():
    readmitting = {"windows": ["4"], "readmitted": ["2", "3"]}
    later = Entry(kind="published", why="", window="4", details=readmitting)
    state = State((refusing("2", "2"), refusing("3", "3"), later))
    assert state.refused_windows == set()
    # Decided again with other data, the window readmits none.
    assert State((*state.entries, refusing("4", "4"))).refused_windows == {"2", "3", "4"}


def test_contents_of_refused_windows_are_empty_in_a_history_without_them():
    new = refusing("3", "3", refused_contents={"3": "abc"})
    assert State((refusing("2", "2"), new)).refused_contents == {"2": "", "3": "abc"}


def with_check(window, kind="published", **check):
    check = {"guard": "max_decline", "passed": True, "why": "", **check}
    return Entry(kind=kind, why="", window=window, checks=[check], details={"windows": [window]})


def test_a_loss_is_accepted_where_it_was_published_above_the_limit():
    entries = (
        with_check("1", value=0.5, limit=0.6),
        with_check("2", value=0.4, limit=0.3),
        with_check("3", "held", value=0.4, passed=False),
        with_check("4", value=0.1),
        with_check("5"),
    )
    assert State(entries).accepted("max_decline", 0.3) == "2"
    assert State(entries).accepted("max_decline", 0.45) == "1"
    assert State(entries).accepted("max_decline", None) == ""
    assert State(entries).accepted("max_lead_loss", 0.3) == ""


def test_entries_read_back_as_written(tmp_path):
    history = History(tmp_path)
    entry = Entry(
        kind="held", why="too low", window="2026-01-01", key="k", model="m",
        metrics={"champion": 0.1}, checks=[{"guard": "g", "passed": False, "why": "w"}],
        details={"windows": ["2026-01-01"]},
    )  # fmt: skip
    history.append(published("a"))
    state = history.append(entry)
    assert list(state.entries) == [published("a"), entry]
    assert history.read().entries == state.entries
    assert len(history.path.read_text().splitlines()) == 2


def test_an_action_is_unfinished_until_it_is_finished(tmp_path):
    history = History(tmp_path)
    assert history.unfinished() is None
    history.append(published("a"))
    assert history.unfinished() == published("a")
    history.finish()
    assert history.unfinished() is None
    history.append(Entry(kind="skipped", why="", window="w"))
    assert history.unfinished() is None
    history.append(published("a"))
    assert history.unfinished() == published("a")


@pytest.mark.parametrize("line", ["{", "[]", '{"kind": "held"}', '{"kind": "x", "why": ""}'])
def test_a_damaged_line_is_named(tmp_path, line):
    history = History(tmp_path)
    history.append(published("a"))
    history.path.write_text(history.path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"history\.jsonl: line 2"):
        history.read()
