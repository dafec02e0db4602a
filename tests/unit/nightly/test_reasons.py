"""The reasons of a decision as a person reads them."""

from hypothesis import given
from hypothesis import strategies as st

from dayahead.nightly.guards import Check
from dayahead.nightly.history import Entry
from dayahead.nightly.night import _entry
from dayahead.nightly.reasons import WIDTH, passed_of, reasons_of

CHECKS = [
    {"guard": "max_fall", "passed": False, "why": "fell by 60 %", "advice": "look at the log"},
    {"guard": "max_top_item", "passed": False, "why": "one item", "advice": "look at the log"},
    {"guard": "withdrawn", "passed": True, "why": "not rolled back before"},
]


def test_each_guard_that_refused_has_a_line_and_equal_advice_one():
    reasons = reasons_of(Entry(kind="held", why="all of it in one line", checks=CHECKS))
    assert reasons.headline == "2 of 3 guards held it"
    assert [*reasons.lines] == [
        "  max_fall: fell by 60 %", "  max_top_item: one item", "  what to do: look at the log",
    ]  # fmt: skip


NOT_CHECKED = [
    {"guard": name, "passed": True, "checked": False, "why": why}
    for name, why in (("a", "too few"), ("b", "too few"), ("c", "is null"))
]


def test_guards_that_were_not_checked_are_counted_apart_and_named_with_the_reason():
    assert passed_of([*CHECKS[2:], *NOT_CHECKED]) == "1 guards passed, 3 not checked"
    assert passed_of(CHECKS[2:] * 2) == "all 2 guards passed"
    held = reasons_of(Entry(kind="held", why="", checks=[*CHECKS, *NOT_CHECKED]))
    assert held.headline == "2 of 3 guards held it"
    published = reasons_of(Entry(kind="published", why="w", checks=NOT_CHECKED))
    assert [*published.lines] == [*held.lines][-2:] == [
        "  not checked: a, b: too few", "  not checked: c: is null",
    ]  # fmt: skip


def test_advice_that_ends_another_is_given_once():
    more = {**CHECKS[1], "advice": "is it a bot? look at the log"}
    reasons = reasons_of(Entry(kind="refused", why="", checks=[CHECKS[0], more]))
    assert reasons.advice == ["is it a bot? look at the log"]


def test_the_history_gives_advice_that_ends_another_once():
    checks = [
        Check("max_new_items", False, "new", "renumbered? look at the log"),
        Check("max_top_item", False, "one item", "look at the log"),
    ]
    assert _entry("refused", checks).why == "new; one item; renumbered? look at the log"


def test_what_has_no_guards_is_cut_only_where_the_data_were_refused_and_it_is_long():
    parts = ["x" * 150, "y" * 150]
    for kind, n_lines in (("refused", 1), ("rolled back", 0)):
        reasons = reasons_of(Entry(kind=kind, why="; ".join(parts)))
        assert len([*reasons.lines]) == n_lines
    assert reasons_of(Entry(kind="refused", why="a; b")).headline == "a; b"


@given(why=st.lists(st.text("abc", min_size=1, max_size=60), max_size=60).map(" ".join))
def test_no_word_is_lost_and_no_line_is_wider_than_the_terminal(why):
    check = {"guard": "g", "passed": False, "why": why}
    lines = [*reasons_of(Entry(kind="held", why="", checks=[check])).lines]
    assert " ".join(lines).split() == ["g:", *why.split()]
    assert all(len(line) <= WIDTH for line in lines)
