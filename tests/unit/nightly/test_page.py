"""nightly.html: what a person sees in the morning, from a history alone."""

import re

import pytest

from dayahead.config.loading import validated
from dayahead.config.nightly import NightlyConfig
from dayahead.nightly.history import Entry, State
from dayahead.nightly.page import render_page
from support.pretended_nights import run_nights
from support.tiny_settings import NIGHTLY

CHECKS = [
    {"guard": "max_fall", "passed": False, "why": "fell <far>", "advice": "look"},
    {"guard": "withdrawn", "passed": True, "why": "not rolled back before"},
]


@pytest.fixture(scope="module", autouse=True)
def _without_charts():
    """Here they are drawn."""


def entry(number, kind="published", **more):
    window = f"2026-01-{number:02}"
    details = {"windows": [window]} | more.pop("details", {})
    return Entry(kind=kind, why=f"why {number}", window=window, details=details, **more)


def night(number, kind="published", **more):
    metrics = {"champion": number / 100, "popularity": 0.01}
    return entry(number, kind, model=f"model-{number}", metrics=metrics, **more)


def rendered(tmp_path, *entries):
    config = validated(NightlyConfig, NIGHTLY, "nightly")
    render_page(tmp_path / "nightly.html", State(entries), config, "shop", {}, None)
    return (tmp_path / "nightly.html").read_text()


def visible(page):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page.partition("<body>")[2]))


def test_the_page_needs_nothing_from_elsewhere(tmp_path):
    page = rendered(tmp_path, night(1), night(2), night(3, "held", checks=CHECKS))
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "<script" not in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_it_opens_with_what_is_served(tmp_path):
    text = visible(rendered(tmp_path, night(1), night(2), night(3, "held", checks=CHECKS)))
    assert "2 published, 1 held, 0 refused" in text
    assert "Serving model-2 fitted up to 2026-01-02" in text
    assert "Before it model-1" in text
    assert "Newest decision held window 2026-01-03" in text


def test_a_guard_that_refuses_says_why_and_what_to_do_before_the_folded_table(tmp_path):
    page = rendered(tmp_path, night(1), night(2, "held", checks=CHECKS[::-1]))
    shown, _, table = page.partition("<details>")
    assert "<li><code>max_fall</code> fell &lt;far&gt;</li>" in shown
    assert "What to do: look</p>" in shown
    assert table.index("max_fall") < table.index("withdrawn")


def test_guards_that_were_not_checked_say_so_in_the_table_and_are_counted_apart(tmp_path):
    off = {"guard": "max_decline", "passed": True, "checked": False, "why": "too few windows"}
    page = rendered(tmp_path, night(1), night(2, "held", checks=[*CHECKS[1:], off, CHECKS[0]]))
    text = visible(page)
    assert "All 3 guards, 1 not checked" in text
    assert "max_fall refused fell &lt;far&gt; max_decline not checked too few windows" in text
    assert "withdrawn passed not rolled back before" in text


def test_each_night_says_whether_quality_rose_or_fell(tmp_path):
    text = visible(rendered(tmp_path, night(1), night(4), night(5)))
    assert "@5 0.0400: 300.0% up from 2026-01-01 model-4" in text
    assert "@5 0.0500: 25.0% up from 2026-01-04 and 100.0% above the median of the 2" in text


def test_trials_show_no_interim_result_and_a_winner_waits(tmp_path):
    champion = entry(1, "champion", details={"settings": {"model.d_model": 64}})
    known = {"trial": "t", "challenger": "small"}
    other = {"settings": {"model.d_model": 32}}
    enrolled = entry(1, "enrolled", details=known | other)
    text = visible(rendered(tmp_path, champion, enrolled, night(1)))
    assert "on trial small : model.d_model=32 Decided once, 6 windows after" in text
    won = entry(7, "succession", details=known | other | {"outcome": "won"})
    text = visible(rendered(tmp_path, champion, enrolled, night(1), won))
    assert "dayahead nightly --promote small" in text
    taken = entry(8, "champion", details=other)
    text = visible(rendered(tmp_path, champion, enrolled, night(1), won, taken))
    assert "--promote" not in text


def test_older_nights_are_folded_away(tmp_path):
    entries = [entry(number % 28 + 1, "skipped") for number in range(70)]
    text = visible(rendered(tmp_path, *entries))
    assert "10 older entries" in text


def test_an_empty_history_has_a_page(tmp_path):
    assert "No decision yet" in rendered(tmp_path)


@pytest.mark.long
def test_after_a_rollback_the_page_says_which_model_was_withdrawn_and_why(root):
    night, _ = run_nights(root, 4)
    assert "withdrawn:" not in night.history.page.read_text()
    night.rollback("clicks fell")
    text = night.history.page.read_text()
    assert "<small>withdrawn: clicks fell; dayahead rollback swaps the two</small>" in text
